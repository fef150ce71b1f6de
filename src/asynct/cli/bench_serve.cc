// asynct bench serve: requests to an OpenAI-compatible server, and how fast they were answered.

#include <cmath>
#include <cstdio>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/not_empty.h"
#include "asynct/eval/output_file.h"
#include "asynct/serve/load/report.h"
#include "asynct/serve/load/run.h"

namespace asynct {
namespace {

struct Arguments {
  load::LoadOptions load;
  std::string url;
  std::string endpoint = "completions";
  std::string rate;
  std::string prompt_tokens = "256";
  std::string output_tokens = "64";
  std::string goodput;
  std::string output;
  bool requests_given = false;
  bool json = false;
};

load::LoadOptions load_options(const Arguments& arguments) {
  load::LoadOptions options = arguments.load;
  options.url = load::parse_url(arguments.url);
  for (const unsigned char c : options.api_key)  // it stands in a header
    if (c <= ' ' || c >= 0x7F) fail("--api-key: expected printable ASCII without spaces");
  options.endpoint = arguments.endpoint == "chat" ? load::Endpoint::chat : load::Endpoint::completions;
  if (!arguments.rate.empty()) options.rate = load::parse_rate(arguments.rate, "--rate");
  options.prompt_tokens = load::LengthDistribution::parse(arguments.prompt_tokens, "--prompt-tokens");
  options.output_tokens = load::LengthDistribution::parse(arguments.output_tokens, "--output-tokens");
  options.goodput = load::Goodput::parse(arguments.goodput, "--goodput");
  if (options.duration > 0 && !arguments.requests_given) options.requests = 0;
  if (options.requests == 0 && options.rate && std::isinf(*options.rate))
    fail("--rate inf: expected --requests, as all of them begin at once");
  return options;
}

void bench_serve(const Arguments& arguments) {
  std::unique_ptr<OutputFile> output;
  const load::LoadOptions options = load_options(arguments);
  if (!arguments.output.empty()) output = std::make_unique<OutputFile>(arguments.output);
  const load::LoadResult result = load::run_load(options);
  Json report = load::report_json(result);
  if (arguments.json)
    std::printf("%s\n", dump_json(report, 2).c_str());
  else
    load::print_report(result, stdout);
  if (output != nullptr) {
    report["requests"] = load::records_json(result);
    output->write(dump_json(report) + "\n");
    output->commit();
  }
  if (result.signal != 0) throw CLI::RuntimeError(128 + result.signal);
  if (const std::int64_t failed = load::failures(result); failed > 0)
    fail(failed, " of ", result.records.size(), " requests failed");
}

/// Without the bounds in the help, where they would take a line an option.
template <class Number>
CLI::Validator range(Number least, Number greatest) {
  return CLI::Range(least, greatest).description("");
}

void add_load(CLI::App& command, Arguments& arguments) {
  load::LoadOptions& options = arguments.load;
  CLI::Option* const requests = command.add_option("--requests", options.requests, "how many")
                                    ->capture_default_str()
                                    ->check(range(std::int64_t{1}, std::int64_t{10'000'000}));
  requests->each([&arguments](const std::string&) { arguments.requests_given = true; });
  command.add_option("--duration", options.duration, "seconds in which they begin (default: no limit)")
      ->check(range(0.001, 1e6));
  CLI::Option* const concurrency =
      command.add_option("--concurrency", options.concurrency, "closed loop: requests at any time")
          ->capture_default_str()
          ->check(range(1, 100000));
  command
      .add_option("--rate", arguments.rate,
                  "open loop (default: closed): arrivals a second (Poisson), or inf")
      ->excludes(concurrency)
      ->check(not_empty());
  command.add_option("--timeout", options.timeout, "seconds a request may take")
      ->capture_default_str()
      ->check(range(0.001, 1e6));
  command.add_option("--cancel-share", options.cancel_share, "share of requests that disconnect at random")
      ->capture_default_str()
      ->check(range(0.0, 1.0));
  command.add_flag("--health", options.health, "measure GET /health meanwhile, every 20 ms");
}

void add_prompts(CLI::App& command, Arguments& arguments) {
  load::LoadOptions& options = arguments.load;
  constexpr std::int64_t kLongest = load::LengthDistribution::kMaxLength;
  command
      .add_option("--prompt-tokens", arguments.prompt_tokens,
                  "MEAN, MEAN:STDDEV (normal) or LO..HI (uniform)")
      ->capture_default_str();
  command.add_option("--output-tokens", arguments.output_tokens, "likewise")->capture_default_str();
  command
      .add_option("--shared-prefix", options.shared_prefix,
                  "tokens in front of them, the same for all prompts")
      ->capture_default_str()
      ->check(range(std::int64_t{0}, kLongest));
  command.add_option("--prefixes", options.prefixes, "different ones of these")
      ->capture_default_str()
      ->check(range(1, 1'000'000));
  command
      .add_option("--prompts", options.prompts_file,
                  "JSON lines: texts, token ids, or objects (default: random)")
      ->check(CLI::ExistingFile);
  command
      .add_option("--vocab-size", options.vocabulary,
                  "for random token ids; 0: the server is asked, else words")
      ->capture_default_str()
      ->check(range(std::int64_t{0}, std::int64_t{INT32_MAX}));
  command.add_option("--seed", options.seed, "of prompts, arrivals, cancels")->capture_default_str();
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("serve", "load on an OpenAI-compatible server, its latencies");
  command->add_option("URL", arguments->url, "http://HOST:PORT")->required();
  command->add_option("--model", arguments->load.model, "its name in requests (default: the server's first)")
      ->check(not_empty());
  command->add_option("--api-key", arguments->load.api_key, "sent as a bearer token (default: none)")
      ->check(not_empty());
  command->add_option("--endpoint", arguments->endpoint, "completions or chat")
      ->capture_default_str()
      ->check(CLI::IsMember({"completions", "chat"}));
  add_load(*command, *arguments);
  add_prompts(*command, *arguments);
  command->add_flag("--ignore-eos,!--no-ignore-eos", arguments->load.ignore_eos,
                    "exactly --output-tokens (the default)");
  command->add_flag("--stream,!--no-stream", arguments->load.stream, "token by token (the default)");
  command->add_option("--temperature", arguments->load.temperature, "sampling")
      ->capture_default_str()
      ->check(range(0.0, 100.0));
  command->add_option("--goodput", arguments->goodput, "limits, e.g. ttft:200,tpot:50 in ms (default: none)")
      ->check(not_empty());
  command->add_flag("--json", arguments->json, "for programs");
  command->add_option("--output", arguments->output, "JSON file, with each request (default: none)")
      ->check(not_empty());
  command->callback([arguments] { bench_serve(*arguments); });
}

}  // namespace asynct
