#include "asynct/model/synth.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/limits.h"
#include "asynct/cli/commands.h"

namespace asynct {
namespace {

struct SynthArguments {
  SynthOptions options;
  double gate_zeros = -1;
  std::string dtype = "bf16";
  std::string attention = "asynci";
  std::string norm = "dyht";
  int threads = 0;
};

void run_synth(SynthArguments arguments) {
  SynthOptions& options = arguments.options;
  if (arguments.gate_zeros >= 0) options.gate_zeros = arguments.gate_zeros;
  options.dtype = arguments.dtype == "bf16" ? DType::bf16 : DType::f32;
  options.attention = arguments.attention == "asynci" ? AttentionForm::asynci : AttentionForm::softmax;
  options.norm = arguments.norm == "dyht" ? NormKind::dyht : NormKind::rms;
  ThreadPool pool(arguments.threads > 0 ? arguments.threads : available_cores());
  const InterruptGuard interrupt;  // the unfinished directory is removed
  const auto start = std::chrono::steady_clock::now();
  const SynthSummary summary = write_synthetic(options, pool);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s: %.2f M parameters, %.1f MB, %.1f s (no tokenizer: none is made)\n", options.out.c_str(),
              static_cast<double>(summary.parameters) / 1e6, static_cast<double>(summary.bytes) / 1e6,
              seconds.count());
}

}  // namespace

void add_synth(CLI::App& app) {
  const auto arguments = std::make_shared<SynthArguments>();
  CLI::App* const command = app.add_subcommand("synth", "write a random AsyncT checkpoint (for speed work)");
  command->footer(
      "Values follow the training recipe's initializer: embedding 0.02 (multiplier 50), linear layers\n"
      "1/sqrt(fan-in), output and down projections times 3/sqrt(2 layers), sigma 1. The same seed gives\n"
      "the same values. No tokenizer is written: the model is for `bench`, not for text.\n"
      "--gate-zeros Z: channel 0 of the feed-forward's norm is made the constant 1 (alpha 0, beta 1) and\n"
      "every gate row gets one negative weight on it, so that a share of about Z of relu(gate) is zero\n"
      "for any input. A trained model has 0.75 to 0.87; without the option it is 0.5.");
  command
      ->add_option("--shape", arguments->options.shape,
                   "tiny, smollm2 (135 M) or source (596 M), then changes: source,layers=2\n"
                   "(keys: layers hidden heads kv_heads head_dim intermediate vocab\n"
                   "positions tied rope_theta)")
      ->capture_default_str();
  command->add_option("--out", arguments->options.out, "directory to make; must not exist, or be empty")
      ->required();
  command->add_option("--seed", arguments->options.seed, "any number")->capture_default_str();
  command
      ->add_option("--gate-zeros", arguments->gate_zeros, "share of zeros in relu(gate); default: not shaped")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--dtype", arguments->dtype, "of every tensor")
      ->capture_default_str()
      ->check(CLI::IsMember({"bf16", "fp32"}));
  command->add_option("--attention", arguments->attention, "softmax: for comparison")
      ->capture_default_str()
      ->check(CLI::IsMember({"asynci", "softmax"}));
  command->add_option("--norm", arguments->norm, "rms: for comparison")
      ->capture_default_str()
      ->check(CLI::IsMember({"dyht", "rms"}));
  command->add_option("--threads", arguments->threads, "default: all cores")->check(CLI::Range(1, 1024));
  command->callback([arguments] { run_synth(*arguments); });
}

}  // namespace asynct
