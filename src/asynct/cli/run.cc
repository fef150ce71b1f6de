// asynct run: text from a prompt, or a prompt at a time from the terminal.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/memory_option.h"
#include "asynct/cli/print_error.h"
#include "asynct/engine/engine.h"
#include "asynct/engine/engine_factory.h"
#include "asynct/text/stop_matcher.h"
#include "asynct/text/stream_decoder.h"
#include "asynct/text/tokenizer.h"

namespace asynct {
namespace {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::int64_t max_tokens = 256;
  SamplingParams sampling;
  std::vector<std::string> stops;
  std::string dtype = "fp32";
  ModelOptions model_options{.max_sequences = 1};
};

// Writes text as it comes; stops at a stop string or when the user interrupts.
class Printer : public EngineListener {
 public:
  Printer(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : decoder_(tokenizer, true), stops_(stops) {}

  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId /*id*/, Token token, std::span<const TokenLogprob> /*logprobs*/) override {
    print(stops_.push(decoder_.push(token)));
    return !stops_.stopped() && !InterruptGuard::requested();
  }
  void on_finished(RequestId /*id*/, FinishReason reason, std::string_view error) override {
    print(stops_.push(decoder_.finish()) + stops_.finish());
    end_line();
    if (reason == FinishReason::failed) fail("the model failed: ", error);
    if (reason == FinishReason::stuck) fail(error);
  }

  /// Every prompt has its line, also one that gives no text.
  void end_line() {
    if (!std::exchange(ended_, true)) print("\n");
  }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  bool ended_ = false;
  StreamDecoder decoder_;
  StopMatcher stops_;
};

/// Returns the signal that ended the text early; 0: none.
int complete(OpenedModel& model, const Tokenizer& tokenizer, const RunOptions& options,
             const std::string& prompt, Printer& printer) {
  Request request{.tokens = tokenizer.encode(prompt, {.add_special_tokens = true}),
                  .max_new_tokens = options.max_tokens,
                  .sampling = options.sampling,
                  .end_tokens = model.end_tokens};
  if (request.tokens.empty()) fail("the prompt is empty, and this tokenizer adds no token of its own");
  const auto room = model.runner->max_length() - static_cast<std::int64_t>(request.tokens.size());
  if (room < 1)
    fail("the prompt has ", request.tokens.size(), " tokens; the context of this model ends at ",
         model.runner->max_length());
  request.max_new_tokens = std::min(request.max_new_tokens, room);
  const InterruptGuard interrupts;
  Engine engine(*model.runner, model.engine);
  const RequestId id = engine.submit({std::move(request)});
  while (engine.step(printer))
    if (InterruptGuard::requested()) engine.cancel(id, printer);
  return InterruptGuard::signal();
}

void exit_on(int signal) {
  if (signal != 0) throw CLI::RuntimeError(128 + signal);
}

/// Prompts typed at a terminal: Ctrl-C stops the text, not the program, and a bad prompt is told.
void converse(OpenedModel& model, const Tokenizer& tokenizer, const RunOptions& options) {
  std::string line;
  while (std::fputs("> ", stderr), std::getline(std::cin, line)) {
    if (line.empty()) continue;
    Printer printer(tokenizer, options.stops);
    try {
      const int signal = complete(model, tokenizer, options, line, printer);
      exit_on(signal == SIGINT ? 0 : signal);
    } catch (const Error& error) {
      print_error(error.what());
    }
  }
}

/// A prompt a line from a file or a pipe. One that cannot be run costs the exit status, not the prompts after
/// it.
void complete_lines(OpenedModel& model, const Tokenizer& tokenizer, const RunOptions& options) {
  bool failed = false;
  std::string line;
  for (std::int64_t number = 1; std::getline(std::cin, line); ++number) {
    Printer printer(tokenizer, options.stops);
    try {
      if (!line.empty()) exit_on(complete(model, tokenizer, options, line, printer));
    } catch (const Error& error) {
      print_error(cat("line ", number, ": ", error.what()));
      failed = true;
    }
    printer.end_line();
  }
  if (failed) throw CLI::RuntimeError(1);
}

void run(const RunOptions& options) {
  validate(options.sampling);
  ModelOptions model_options = options.model_options;
  model_options.precision = options.dtype == "bf16" ? Precision::bf16 : Precision::fp32;
  const Tokenizer tokenizer = Tokenizer::load(options.model);
  OpenedModel model = open_runner(options.model, model_options);
  model.end_tokens = end_tokens_of(model, tokenizer);
  if (options.prompt) {
    Printer printer(tokenizer, options.stops);
    exit_on(complete(model, tokenizer, options, *options.prompt, printer));
  } else if (::isatty(STDIN_FILENO) == 1) {
    converse(model, tokenizer, options);
  } else {
    complete_lines(model, tokenizer, options);
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "continue a prompt, or prompts from standard input a line each");
  command->add_option("MODEL", options->model, "checkpoint directory")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("-p,--prompt", options->prompt, "text to continue (without it: interactive)");
  command->add_option("-n,--max-tokens", options->max_tokens, "tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  command->add_option("--temperature", options->sampling.temperature, "0 is greedy")->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "0 is all")->capture_default_str();
  command->add_option("--top-p", options->sampling.top_p, "mass of the tokens kept")->capture_default_str();
  command->add_option("--min-p", options->sampling.min_p, "least share of the best token")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "the same seed gives the same text")
      ->capture_default_str();
  command->add_option("--stop", options->stops, "end before this text (repeatable)");
  command->add_option("--dtype", options->dtype, "fp32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("--device", options->model_options.device, "cpu")->capture_default_str();
  command->add_option("--threads", options->model_options.threads, "0 is one a core")->capture_default_str();
  add_kv_memory(*command, options->model_options.kv_bytes);
  command->callback([options] { run(*options); });
}

}  // namespace asynct
