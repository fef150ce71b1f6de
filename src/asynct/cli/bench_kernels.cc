// asynct bench kernels: the CUDA kernels against their floors.

#include <cstdio>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/base/log.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/not_empty.h"
#include "asynct/eval/output_file.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"

namespace asynct {
namespace {

struct Arguments {
  kernel_bench::KernelBenchOptions bench;
  std::vector<std::string> decode;
  std::vector<std::string> prefill;
  std::vector<std::string> mixed;
  std::vector<std::string> linear;
  std::vector<std::string> layer;
  std::string json;
};

/// Shapes that were given take the place of the defaults.
template <class Shape>
void parse_shapes(const std::vector<std::string>& texts, std::string_view option,
                  std::vector<Shape>& shapes) {
  if (texts.empty()) return;
  shapes.clear();
  for (const std::string& text : texts) shapes.push_back(Shape::parse(text, option));
}

void bench_kernels(Arguments arguments) {
  parse_shapes(arguments.decode, "--decode", arguments.bench.decode);
  parse_shapes(arguments.prefill, "--prefill", arguments.bench.prefill);
  parse_shapes(arguments.mixed, "--mixed", arguments.bench.mixed);
  parse_shapes(arguments.linear, "--linear", arguments.bench.linear);
  parse_shapes(arguments.layer, "--layer", arguments.bench.layer);
  std::unique_ptr<OutputFile> output;
  if (!arguments.json.empty()) output = std::make_unique<OutputFile>(arguments.json);
  const kernel_bench::Report report = kernel_bench::run_kernel_bench(
      arguments.bench, [](const std::string& next) { log(LogLevel::info, next); });
  if (report.results.empty()) fail("--filter \"", arguments.bench.filter, "\" leaves nothing to run");
  std::fputs(kernel_bench::table(report).c_str(), stdout);
  if (output == nullptr) return;
  output->write(dump_json(kernel_bench::to_json(report), 1) + "\n");
  output->commit();
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("kernels", "CUDA kernels against what the card can do");
  const auto shapes = [&](const char* name, std::vector<std::string>& texts, const char* description) {
    command->add_option(name, texts, description)->expected(1)->take_all()->check(not_empty());
  };
  shapes("--decode", arguments->decode, "B,T,H,Hk,D; may be repeated (default: the documents' shapes)");
  shapes("--prefill", arguments->prefill, "B,T,H,Hk,D, likewise");
  shapes("--mixed", arguments->mixed, "CHUNKS,ROWS,KEYS,DECODES,KEYS,H,Hk,D, likewise");
  shapes("--linear", arguments->linear, "M,N,K: rows, outputs, inputs, likewise");
  shapes("--layer", arguments->layer, "M,d,H,Hk,D,F,V: rows of a layer and head, likewise");
  command->add_option("--density", arguments->bench.densities, "shares of value rows that decode needs")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0).description(""));
  command
      ->add_option("--filter", arguments->bench.filter,
                   "only lines \"KERNEL SHAPE VARIANT\" with this text (default: all)")
      ->check(not_empty());
  command->add_flag("--quick", arguments->bench.quick, "fewer and shorter runs");
  command->add_option("--json", arguments->json, "file for programs (default: none)")->check(not_empty());
  command->callback([arguments] { bench_kernels(*arguments); });
}

}  // namespace asynct
