// asynct bench: what a model does on this machine, next to what the machine can do.

#include <algorithm>
#include <cstdio>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/limits.h"
#include "asynct/base/mapped_file.h"
#include "asynct/cli/commands.h"
#include "asynct/cli/memory_option.h"
#include "asynct/cli/not_empty.h"
#include "asynct/engine/benchmark.h"
#include "asynct/ops/probe/probe.h"
#include "asynct/text/tokenizer.h"

namespace asynct {
namespace {

struct BenchOptions {
  std::string model;
  BenchmarkOptions work;
  std::string text_file;
  std::string dtype = "fp32";
  int threads = 0;
  std::int64_t batch_tokens = 1024;
  std::int64_t kv_bytes = 0;
  bool json = false;
};

struct Machine {
  Isa isa;
  int threads;
  double fma_peak;        // FLOP/s
  double read_bandwidth;  // bytes/s, from memory
  double cache;           // bytes of the last-level caches
};

Machine probe(Isa isa, int threads) {
  ThreadPool pool(threads);
  return {isa, threads, measure_fma_peak(pool, isa), measure_read_bandwidth(pool, isa),
          static_cast<double>(last_level_cache_bytes())};
}

/// What else runs on a machine only takes away: of two probes the better is nearer the truth.
Machine better(Machine a, const Machine& b) {
  a.fma_peak = std::max(a.fma_peak, b.fma_peak);
  a.read_bandwidth = std::max(a.read_bandwidth, b.read_bandwidth);
  return a;
}

/// Steps that read each weight for few rows are measured by bandwidth; a prefill reads it for many.
bool is_decode(const BenchmarkResult& result) { return result.name.starts_with("decode"); }

/// What a step reads stays in the cache from one to the next: memory's bandwidth says nothing about it.
bool in_cache(const Machine& machine, const BenchmarkResult& result) {
  return result.read_bytes <= machine.cache;
}

double bandwidth_share(const Machine& machine, const BenchmarkResult& result) {
  return result.read_bytes * result.steps / result.seconds / machine.read_bandwidth;
}

void print_table(const Machine& machine, const std::vector<BenchmarkResult>& results) {
  std::printf(
      "%s kernels, %d threads; measured peaks: %.1f GFLOP/s of FMA, %.1f GB/s read; last-level cache %.1f "
      "MB\n\n",
      std::string(name(machine.isa)).c_str(), machine.threads, machine.fma_peak / 1e9,
      machine.read_bandwidth / 1e9, machine.cache / 1e6);
  std::printf("%-20s %10s %10s %8s %8s %9s %8s %8s\n", "test", "tokens/s", "ms", "MB/step", "% of bw",
              "GFLOP/s", "% of FMA", "active");
  for (const BenchmarkResult& r : results) {
    const double steps = is_decode(r) ? r.steps : 1;
    std::printf("%-20s %10.1f %10.2f %8.1f ", r.name.c_str(), r.tokens_per_second, r.seconds / steps * 1e3,
                r.read_bytes / 1e6);
    if (is_decode(r) && !in_cache(machine, r))
      std::printf("%8.1f ", 100 * bandwidth_share(machine, r));
    else
      std::printf("%8s ", is_decode(r) ? "cache" : "-");
    std::printf("%9.1f %8.1f %8.3f\n", r.flops / r.seconds / 1e9,
                100 * r.flops / r.seconds / machine.fma_peak, r.active_neurons);
  }
}

void print_json(const Machine& machine, const std::vector<BenchmarkResult>& results) {
  Json report;
  report["isa"] = name(machine.isa);
  report["threads"] = machine.threads;
  report["fma_peak_flops"] = machine.fma_peak;
  report["read_bandwidth_bytes"] = machine.read_bandwidth;
  report["last_level_cache_bytes"] = machine.cache;
  report["results"] = Json::array();
  for (const BenchmarkResult& r : results) {
    const bool from_memory = is_decode(r) && !in_cache(machine, r);
    report["results"].push_back(
        {{"name", r.name},
         {"seconds", r.seconds},
         {"steps", r.steps},
         {"tokens_per_second", r.tokens_per_second},
         {"dense_bytes_a_step", r.dense_bytes},
         {"read_bytes_a_step", r.read_bytes},
         {"in_cache", in_cache(machine, r)},
         {"read_bandwidth_share", from_memory ? Json(bandwidth_share(machine, r)) : Json()},
         {"flops", r.flops},
         {"active_neurons", r.active_neurons}});
  }
  std::printf("%s\n", dump_json(report, 2).c_str());
}

/// The tokens of a file; the tokenizer may know more of them than the model does.
std::vector<Token> text_tokens(const BenchOptions& options, const ModelConfig& config) {
  constexpr std::size_t kMaxText = std::size_t{16} << 20;
  std::vector<Token> tokens = Tokenizer::load(options.model).encode(read_file(options.text_file, kMaxText));
  if (tokens.empty()) fail("--text: ", options.text_file, " has no tokens");
  for (const Token token : tokens)
    if (token < 0 || token >= config.vocab_size)
      fail("--text: ", options.text_file, ": the tokenizer gives token ", token, ", but the model has ",
           config.vocab_size, " tokens");
  return tokens;
}

void bench(BenchOptions options) {
  const Isa isa = select_isa();
  const int threads = options.threads == 0 ? available_cores() : options.threads;
  const ModelConfig config = load_config(options.model);
  validate(options.work, config.max_positions, options.batch_tokens);
  if (!options.text_file.empty()) options.work.text = text_tokens(options, config);
  const Precision precision = options.dtype == "bf16" ? Precision::bf16 : Precision::fp32;
  const std::size_t needed = benchmark_kv_bytes(kv_shape(config, precision, 16), options.work);
  const auto kv_bytes = static_cast<std::size_t>(options.kv_bytes);
  if (kv_bytes > 0 && kv_bytes < needed)
    fail("--kv-memory: ", kv_bytes >> 10, "K, but the largest test needs ", (needed >> 10) + 1, "K");
  const auto run = [&] {
    CpuRunner runner(options.model, {.threads = threads,
                                     .isa = isa,
                                     .precision = precision,
                                     .max_rows = options.batch_tokens,
                                     .max_sequences = benchmark_sequences(options.work),
                                     .block_size = 16,
                                     .kv_bytes = std::max(kv_bytes, needed)});
    return run_benchmark(runner, options.work);
  };
  // Before the model takes its memory and after it has given it back: probes read a gigabyte of their own.
  const Machine before = probe(isa, threads);
  const auto results = run();
  const Machine machine = better(before, probe(isa, threads));
  if (options.json)
    print_json(machine, results);
  else
    print_table(machine, results);
}

/// `bench MODEL` needs its model, `bench serve` has none; CLI11 would take "serve" for a required MODEL.
void subcommands_without_model(CLI::App& bench) {
  bench.get_option("MODEL")->required(false);
  bench.parse_complete_callback([&bench] {
    const std::vector<CLI::App*> parsed = bench.get_subcommands();
    const bool has_model = bench.count("MODEL") > 0;
    if (!parsed.empty() && has_model)
      throw CLI::ExcludesError(parsed.front()->get_name(), "MODEL");
    else if (!parsed.empty())
      bench.callback({});
    else if (!has_model)
      throw CLI::RequiredError("MODEL");
  });
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "prefill and decode rates, next to the machine's peaks");
  command->add_option("MODEL", options->model, "checkpoint directory")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--prefill", options->work.prefill, "prompt lengths")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--batch", options->work.batches, "sequences that decode at once")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--context", options->work.contexts, "tokens that each of them has")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--steps", options->work.decode_steps, "decode steps a repeat")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--repeats", options->work.repeats, "the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--text", options->text_file, "file whose tokens are used (default: random tokens)")
      ->check(not_empty());
  command->add_option("--dtype", options->dtype, "fp32 or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->add_option("--threads", options->threads, "0 is one a core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  command->add_option("--batch-tokens", options->batch_tokens, "rows a step at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  add_kv_memory(*command, options->kv_bytes)
      ->description("size of the KV cache (default: what the tests need)");
  command->add_flag("--json", options->json, "for programs");
  command->callback([options] { bench(*options); });
  add_bench_kernels(*command);
  add_bench_serve(*command);
  subcommands_without_model(*command);
}

}  // namespace asynct
