#include "asynct/model/inspect.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/limits.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/memory_option.h"
#include "asynct/text/tokenizer.h"

namespace asynct {
namespace {

struct InspectArguments {
  std::string dir;
  std::string dtype = "fp32";
  int threads = 0;
  RunSize run;
  bool json = false;
  bool check = false;
};

struct TokenizerReport {
  bool present = false;
  int entries = 0;
  std::size_t bytes = 0;  // resident, measured
};

TokenizerReport inspect_tokenizer(const std::string& dir) {
  if (!std::filesystem::exists(dir + "/tokenizer.json")) return {};
  const std::int64_t before = resident_bytes();
  const Tokenizer tokenizer = Tokenizer::load(dir);
  const std::int64_t bytes = std::max<std::int64_t>(0, resident_bytes() - before);
  return {true, tokenizer.vocab_size(), static_cast<std::size_t>(bytes)};
}

std::string shown(std::optional<std::int32_t> id) { return id ? cat(*id) : "none"; }
std::string shown(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += cat(text.empty() ? "" : ",", id);
  return text.empty() ? "none" : text;
}
std::string shown(const Range& range) {
  return range.low == range.high ? cat(range.low) : cat(range.low, " .. ", range.high);
}
double mega(std::size_t bytes) { return static_cast<double>(bytes) / 1e6; }

void print_architecture(const std::string& dir, const ModelReport& report, const TokenizerReport& tokenizer) {
  const ModelConfig& c = report.config;
  std::string dtypes;
  for (const std::string& dtype : report.dtypes) dtypes += (dtypes.empty() ? "" : "+") + dtype;
  std::printf("%s: %s, %.2f M parameters, %s, %.1f MB on disk\n", dir.c_str(), c.model_type.c_str(),
              static_cast<double>(report.parameters) / 1e6, dtypes.c_str(), mega(report.file_bytes));
  std::printf("  layers        %d, hidden size %d\n", c.layers, c.hidden_size);
  std::printf("  heads         %d of size %d, %d for keys and values\n", c.heads, c.head_dim, c.kv_heads);
  std::printf("  attention     %s, scale %s", std::string(name(c.attention_form)).c_str(),
              cat(c.attention.scale).c_str());
  if (c.attention_form == AttentionForm::asynci)
    std::printf(", pool of %d %s", c.attention.pool_size, c.attention.pool_relu ? "relu(S)" : "S");
  std::printf("\n  feed-forward  %d, %s\n", c.intermediate_size,
              c.activation == Activation::relu ? "relu" : "silu");
  if (c.norm_kind == NormKind::dyht)
    std::printf("  norms         dyht, clamp [%s, %s]", cat(c.clip_low).c_str(), cat(c.clip_high).c_str());
  else
    std::printf("  norms         rms, epsilon %s", cat(c.rms_epsilon).c_str());
  std::printf("; q and k %s, after attention %s\n", c.qk_norm ? "yes" : "no",
              c.post_attention_norm ? "yes" : "no");
  std::printf("  positions     %d, rope theta %s\n", c.max_positions, cat(c.rope_theta).c_str());
  std::printf("  vocabulary    %d, %s head, embedding times %s\n", c.vocab_size,
              c.tie_word_embeddings ? "tied" : "untied", cat(c.embedding_multiplier).c_str());
  std::printf("  special ids   bos %s, eos %s, pad %s\n", shown(c.bos_id).c_str(), shown(c.eos_ids).c_str(),
              shown(c.pad_id).c_str());
  std::printf("  tokenizer     %s\n", tokenizer.present ? cat(tokenizer.entries, " ids").c_str() : "none");
}

// What a process holds when it runs the model: what the plan says, and what is measured of this process.
struct MemoryReport {
  MemoryPlan plan;           // parts of the weights only, when it does not fit
  std::string does_not_fit;  // why
  std::size_t program = 0;   // resident when the command starts: program, libraries
  std::size_t tokenizer = 0;

  std::size_t total() const { return plan.total() + program + tokenizer; }
};

MemoryReport plan_run(const InspectArguments& arguments, const ModelSource& source) {
  ThreadPool pool(arguments.threads > 0 ? arguments.threads : available_cores());
  const OpContext context(pool, select_isa(), arguments.dtype == "bf16" ? Precision::bf16 : Precision::fp32);
  MemoryReport report;
  try {
    report.plan =
        plan_memory(context, source.config, source.weights, arguments.run, memory_budget(pool.size()));
  } catch (const Error& error) {
    report.does_not_fit = error.what();
    report.plan.parts = weight_parts(source.config, source.weights);
  }
  return report;
}

void print_memory(const ModelReport& model, const MemoryReport& report) {
  std::printf("\n  %-22s %14s %10s\n", "memory", "parameters", "MB");
  for (const MemoryPart& part : report.plan.parts) {
    const std::string parameters = part.parameters > 0 ? cat(part.parameters) : "";
    std::printf("  %-22s %14s %10.2f\n", part.name.c_str(), parameters.c_str(), mega(part.bytes));
  }
  std::printf("  %-22s %14s %10.2f\n", "program (measured)", "", mega(report.program));
  std::printf("  %-22s %14s %10.2f\n", "tokenizer (measured)", "", mega(report.tokenizer));
  std::printf("  %-22s %14s %10.2f\n", report.does_not_fit.empty() ? "total at most" : "total so far", "",
              mega(report.total()));
  if (report.does_not_fit.empty())
    std::printf("  a step of %lld tokens, a KV cache of %lld; ",
                static_cast<long long>(report.plan.batch_tokens),
                static_cast<long long>(report.plan.cached_tokens));
  else
    std::printf("  does not fit: %s\n  ", report.does_not_fit.c_str());
  std::printf("%zu bytes of cache a token in fp32, %zu in bf16\n", model.kv_bytes_fp32, model.kv_bytes_bf16);
}

void print_heads(const ModelReport& report) {
  if (report.heads.empty()) return;
  std::printf("\n  head classes: %lld skip-safe (s), %lld dead (d), %lld dense (D)\n",
              static_cast<long long>(report.class_counts[0]), static_cast<long long>(report.class_counts[1]),
              static_cast<long long>(report.class_counts[2]));
  std::printf("  %5s  %-*s  sigma\n", "layer", report.config.heads < 5 ? 5 : report.config.heads, "heads");
  for (std::size_t i = 0; i < report.heads.size(); ++i)
    std::printf("  %5zu  %-5s  %s\n", i, report.heads[i].classes.c_str(),
                shown(report.heads[i].sigma).c_str());
}

void print_norms(const ModelReport& report) {
  std::printf("\n  %-16s %-24s %-24s %s\n", "norm", "alpha", "gamma", "beta");
  for (const NormReport& norm : report.norms)
    std::printf("  %-16s %-24s %-24s %s\n", norm.place.c_str(), norm.alpha ? shown(*norm.alpha).c_str() : "-",
                shown(norm.gamma).c_str(), norm.beta ? shown(*norm.beta).c_str() : "-");
}

Json to_json(const Range& range) { return {range.low, range.high}; }
Json to_json(const std::optional<Range>& range) { return range ? to_json(*range) : Json(); }
Json to_json(std::optional<std::int32_t> id) { return id ? Json(*id) : Json(); }

Json config_json(const ModelConfig& c) {
  return {{"model_type", c.model_type},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"layers", c.layers},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"max_positions", c.max_positions},
          {"rope_theta", c.rope_theta},
          {"tied", c.tie_word_embeddings},
          {"activation", c.activation == Activation::relu ? "relu" : "silu"},
          {"embedding_multiplier", c.embedding_multiplier},
          {"attention", name(c.attention_form)},
          {"attention_scale", c.attention.scale},
          {"pool_size", c.attention.pool_size},
          {"pool_relu", c.attention.pool_relu},
          {"norm", c.norm_kind == NormKind::dyht ? "dyht" : "rms"},
          {"qk_norm", c.qk_norm},
          {"post_attention_norm", c.post_attention_norm},
          {"bos", to_json(c.bos_id)},
          {"eos", c.eos_ids},
          {"pad", to_json(c.pad_id)}};
}

Json memory_json(const MemoryReport& report) {
  Json parts = Json::array();
  const auto add = [&](const std::string& name, std::int64_t parameters, std::size_t bytes, bool mapped) {
    parts.push_back({{"part", name}, {"parameters", parameters}, {"bytes", bytes}, {"mapped", mapped}});
  };
  for (const MemoryPart& part : report.plan.parts) add(part.name, part.parameters, part.bytes, part.mapped);
  add("program", 0, report.program, false);
  add("tokenizer", 0, report.tokenizer, false);
  return parts;
}

Json report_json(const ModelReport& report, const MemoryReport& memory, const TokenizerReport& tokenizer) {
  Json json = {{"config", config_json(report.config)},
               {"dtypes", report.dtypes},
               {"parameters", report.parameters},
               {"file_bytes", report.file_bytes}};
  json["memory"] = memory_json(memory);
  json["memory_total"] = memory.total();
  json["batch_tokens"] = memory.plan.batch_tokens;
  json["kv_tokens"] = memory.plan.cached_tokens;
  json["does_not_fit"] = memory.does_not_fit.empty() ? Json() : Json(memory.does_not_fit);
  json["kv_bytes_per_token"] = {{"fp32", report.kv_bytes_fp32}, {"bf16", report.kv_bytes_bf16}};
  json["head_classes"] = {{"skip_safe", report.class_counts[0]},
                          {"dead", report.class_counts[1]},
                          {"dense", report.class_counts[2]}};
  json["layers"] = Json::array();
  for (const LayerHeads& layer : report.heads)
    json["layers"].push_back({{"heads", layer.classes}, {"sigma", to_json(layer.sigma)}});
  for (const NormReport& norm : report.norms)
    json["norms"].push_back({{"place", norm.place},
                             {"alpha", to_json(norm.alpha)},
                             {"gamma", to_json(norm.gamma)},
                             {"beta", to_json(norm.beta)}});
  json["tokenizer_ids"] = tokenizer.present ? Json(tokenizer.entries) : Json();
  return json;
}

Json bad_json(const std::vector<BadTensor>& bad) {
  Json list = Json::array();
  for (const BadTensor& tensor : bad)
    list.push_back({{"tensor", tensor.name}, {"nan", tensor.nan}, {"infinite", tensor.infinite}});
  return list;
}

/// With --check alone the values are reported even when the model cannot be loaded because of them.
void refuse_bad_values(const InspectArguments& arguments, const std::vector<BadTensor>& bad) {
  if (arguments.json) std::printf("%s\n", dump_json({{"bad_tensors", bad_json(bad)}}, 2).c_str());
  for (const BadTensor& tensor : bad)
    if (!arguments.json)
      std::printf("%s: %lld NaN, %lld infinite\n", tensor.name.c_str(), static_cast<long long>(tensor.nan),
                  static_cast<long long>(tensor.infinite));
  std::fflush(stdout);
  fail(arguments.dir, ": ", bad.size(), bad.size() == 1 ? " tensor holds" : " tensors hold",
       " NaN or infinity");
}

/// Bad values first, where they are asked for: a model may not even load because of them.
ModelSource open_source_checked(const InspectArguments& arguments) {
  if (arguments.check) {
    load_config(arguments.dir);
    const auto bad = find_bad_values(Checkpoint(arguments.dir));
    if (!bad.empty()) refuse_bad_values(arguments, bad);
  }
  return open_source(arguments.dir);
}

void run_inspect(const InspectArguments& arguments) {
  const auto program = static_cast<std::size_t>(resident_bytes());
  const TokenizerReport tokenizer = inspect_tokenizer(arguments.dir);
  const ModelSource source = open_source_checked(arguments);
  const ModelReport report = inspect_model(source);
  MemoryReport memory = plan_run(arguments, source);
  memory.program = program;
  memory.tokenizer = tokenizer.bytes;
  if (arguments.json) {
    Json json = report_json(report, memory, tokenizer);
    if (arguments.check) json["bad_tensors"] = Json::array();
    std::printf("%s\n", dump_json(json, 2).c_str());
    return;
  }
  print_architecture(arguments.dir, report, tokenizer);
  print_memory(report, memory);
  print_heads(report);
  print_norms(report);
  if (arguments.check) std::printf("\n  checked: no NaN, no infinity\n");
}

}  // namespace

void add_inspect(CLI::App& app) {
  const auto arguments = std::make_shared<InspectArguments>();
  CLI::App* const command = app.add_subcommand("inspect", "show what a checkpoint is and what it will take");
  command->footer(
      "Heads of AsyncI attention are skip-safe (S <= 0 gives weight 0, so the value row is not read),\n"
      "dead (weight always 0) or dense (no skipping). Memory is what eval holds with the same options,\n"
      "at full batches and a full cache (run has one sequence, so its default cache is smaller); the\n"
      "cache becomes resident only as it is used, the embedding table stays mapped.");
  command->add_option("MODEL", arguments->dir, "directory with config.json and model.safetensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--dtype", arguments->dtype, "of the run: fp32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("--threads", arguments->threads, "of the run; 0: all cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->add_option("--batch-tokens", arguments->run.batch_tokens, "tokens a step at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  add_kv_memory(*command, arguments->run.kv_bytes);
  command->add_flag("--json", arguments->json, "one JSON object instead of tables");
  command->add_flag("--check", arguments->check, "read every tensor; exit 1 when one holds NaN or infinity");
  command->callback([arguments] { run_inspect(*arguments); });
}

}  // namespace asynct
