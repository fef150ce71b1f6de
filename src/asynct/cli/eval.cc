// asynct eval: benchmark scores of a checkpoint.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asynct/base/cpu_features.h"
#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/limits.h"
#include "asynct/base/mapped_file.h"
#include "asynct/base/printable.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/memory_option.h"
#include "asynct/cli/not_empty.h"
#include "asynct/engine/engine_factory.h"
#include "asynct/eval/evaluator.h"
#include "asynct/eval/output_file.h"
#include "asynct/eval/report.h"
#include "asynct/eval/sha256.h"

namespace asynct {
namespace {

struct Arguments {
  std::string model;
  std::string tasks;
  std::optional<std::string> limit;
  int shots = -1;
  ModelOptions engine;
  std::string dtype = "fp32";
  std::string data;
  std::string output;
  std::string samples;
  bool bos = false;
  bool no_bos = false;
  bool truncate = false;
  bool resume = false;
  bool json = false;
};

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) names.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

double parse_limit(const std::string& text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = end.ec == std::errc{} && end.ptr == text.data() + text.size() && !std::isnan(value);
  if (!number || value <= 0 || value > 1e9)
    fail("--limit: expected a number above 0 and at most 1e9, found \"", text, "\"");
  return value;
}

/// Files of a checkpoint that are read to run it; the weights (*.safetensors) are the others.
bool shapes_results(const std::filesystem::path& file) {
  constexpr std::string_view kRead[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "model.safetensors.index.json"};
  return std::find(std::begin(kRead), std::end(kRead), file.filename().string()) != std::end(kRead);
}

/// Names all that bits depend on, checkpoint, precision and kernel family: small files by content, weights by
/// size and time. Other files do not count: the run's own output may lie beside the weights.
std::string model_key(const Arguments& arguments) {
  namespace fs = std::filesystem;
  Sha256 hash;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(arguments.model))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (shapes_results(file))
      hash.update(read_file(file.string(), std::size_t{256} << 20));
    else if (file.extension() == ".safetensors")
      hash.update(cat(fs::file_size(file), ",", fs::last_write_time(file).time_since_epoch().count()));
    else
      continue;
    hash.update(file.filename().string());
  }
  return cat(hash.hex().substr(0, 32), "-", arguments.dtype, "-", name(select_isa()));
}

/// Whether a file will be made or replaced at `path`; a device or a pipe is written as it is.
bool is_file(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return !path.empty() && (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status));
}

/// Progress is kept beside the first output that is a file: /dev/stdout has no place beside it.
std::string progress_path(const Arguments& arguments) {
  for (const std::string& path : {arguments.output, arguments.samples})
    if (is_file(path)) return path + ".progress";
  return {};
}

/// Of two files with one path the later would replace the earlier.
void check_paths(const Arguments& arguments, const std::string& progress) {
  if (!is_file(arguments.samples)) return;
  const std::string samples = resolve_output(arguments.samples);
  if (is_file(arguments.output) && samples == resolve_output(arguments.output))
    fail("--log-samples and --output: both are ", samples, ", expected two files");
  if (!progress.empty() && samples == resolve_output(progress))
    fail("--log-samples: ", samples, " is where the run keeps its progress, expected another file");
}

EvalOptions eval_options(const Arguments& arguments) {
  EvalOptions options;
  options.tasks = split(arguments.tasks);
  options.data = arguments.data;
  if (arguments.limit) options.limit = parse_limit(*arguments.limit);
  if (arguments.shots >= 0) options.shots = arguments.shots;
  if (arguments.bos) options.bos = BosMode::always;
  if (arguments.no_bos) options.bos = BosMode::never;
  options.truncate = arguments.truncate;
  options.threads = arguments.engine.threads > 0 ? arguments.engine.threads : available_cores();
  options.samples = arguments.samples;
  options.progress = progress_path(arguments);
  options.resume = arguments.resume;
  check_paths(arguments, options.progress);
  check_options(options);  // before the model is loaded
  if (!options.progress.empty()) options.model_key = model_key(arguments);
  return options;
}

void tell_stopped(const EvalResult& result, const EvalOptions& options) {
  std::fprintf(stderr, "%s in %s; %zu task%s finished\n", result.interrupted ? "interrupted" : "failed",
               result.stopped_in.c_str(), result.tasks.size(), result.tasks.size() == 1 ? "" : "s");
  if (options.progress.empty())
    std::fprintf(stderr, "nothing is kept: with --output or --log-samples the run could be resumed\n");
  else
    std::fprintf(stderr, "what was done is in %s; the same command with --resume goes on from there\n",
                 printable(options.progress).c_str());
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail("standard output: cannot write: ", std::strerror(errno));
}

void run(const Arguments& arguments) {
  const EvalOptions options = eval_options(arguments);
  // Opens (and drops) the temporary file: a path that cannot be written is known before the work.
  if (!arguments.output.empty()) OutputFile probe(arguments.output);
  const auto started = static_cast<std::int64_t>(std::time(nullptr));
  const InterruptGuard guard;
  const auto model = open_model(arguments.model, arguments.engine);
  const EvalResult result = evaluate(*model, options);

  const std::string report = report_json(result, {.model = arguments.model,
                                                  .dtype = arguments.dtype,
                                                  .device = arguments.engine.device,
                                                  .limit = options.limit,
                                                  .max_length = model->max_length(),
                                                  .started = started});
  if (!result.tasks.empty() && !arguments.output.empty()) {
    OutputFile file(arguments.output);
    file.write(report);
    file.commit();
  }
  if (!result.tasks.empty()) print(arguments.json ? report : report_table(result));
  if (!result.stopped_in.empty()) tell_stopped(result, options);
  if (result.failure) std::rethrow_exception(result.failure);
  if (result.interrupted) throw CLI::RuntimeError(128 + InterruptGuard::signal());
  remove_progress(options);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* eval =
      app.add_subcommand("eval", "score a checkpoint on benchmarks, with lm-evaluation-harness's numbers");
  eval->add_option("MODEL", a.model, "checkpoint directory")->required()->check(CLI::ExistingDirectory);
  eval->add_option("--tasks", a.tasks, "names, separated by commas (docs/evaluation.md lists them)")
      ->required();
  eval->add_option("--limit", a.limit, "first N documents of each task; below 1: that share")
      ->check(not_empty());
  eval->add_option("--num-fewshot", a.shots, "shots, instead of each task's own number")
      ->check(CLI::Range(0, 1000));
  eval->add_option("--device", a.engine.device, "where to run")->capture_default_str();
  eval->add_option("--dtype", a.dtype, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  eval->add_option("--threads", a.engine.threads, "threads; 0: all cores")->capture_default_str();
  eval->add_option("--batch-tokens", a.engine.batch_tokens, "tokens a step at most")->capture_default_str();
  add_kv_memory(*eval, a.engine.kv_bytes);
  eval->add_option("--data", a.data, "data directory (default: the bundled data/)")->check(not_empty());
  eval->add_option("--output", a.output, "write the results as JSON to this file")->check(not_empty());
  eval->add_option("--log-samples", a.samples,
                   "write every document's prompt and answers to this file (JSON lines)")
      ->check(not_empty());
  eval->add_flag("--bos", a.bos, "start every prompt with BOS (default: as the tokenizer says)");
  eval->add_flag("--no-bos", a.no_bos, "start no prompt with BOS")->excludes("--bos");
  eval->add_flag("--truncate", a.truncate, "cut prompts that are too long on the left (default: an error)");
  eval->add_flag("--resume", a.resume, "go on with an interrupted run");
  eval->add_flag("--json", a.json, "print the results as JSON instead of a table");
  eval->callback([arguments] {
    arguments->engine.precision = arguments->dtype == "bf16" ? Precision::bf16 : Precision::fp32;
    run(*arguments);
  });
}

}  // namespace asynct
