#include "asynct/engine/benchmark.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "asynct/base/checked.h"
#include "asynct/base/error.h"
#include "asynct/engine/sampling.h"
#include "asynct/engine/step_builder.h"
#include "asynct/kv/sequence.h"

namespace asynct {
namespace {

class Benchmark {
 public:
  Benchmark(CpuRunner& runner, const BenchmarkOptions& options)
      : runner_(runner), options_(options), pool_(runner.cache().blocks()) {}

  BenchmarkResult prefill(std::int64_t length) {
    return measure(
        cat("prefill ", length), length,
        [&] {
          Sequence sequence = new_sequence();
          feed({&sequence, 1}, length);
        },
        /*steps=*/steps_for(length), length, 1, /*decode=*/false);
  }

  BenchmarkResult decode(std::int64_t batch, std::int64_t context) {
    std::vector<Sequence> sequences;
    for (std::int64_t i = 0; i < batch; ++i) sequences.push_back(new_sequence());
    for (Sequence& sequence : sequences) feed({&sequence, 1}, context);
    return measure(
        cat("decode ", batch, " x ", context), batch * options_.decode_steps,
        [&] {
          std::vector<Sequence> forks;
          forks.reserve(sequences.size());
          for (const Sequence& sequence : sequences) forks.push_back(sequence.fork());
          for (std::int64_t step = 0; step < options_.decode_steps; ++step) feed(forks, 1);
        },
        options_.decode_steps, context + options_.decode_steps / 2, batch, /*decode=*/true);
  }

 private:
  Sequence new_sequence() { return Sequence(pool_, runner_.cache().shape().block_size); }

  std::int64_t steps_for(std::int64_t tokens) const {
    return (tokens + runner_.max_rows() - 1) / runner_.max_rows();
  }

  Token next_token() {
    if (!options_.text.empty())
      return options_.text[static_cast<std::size_t>(drawn_++) % options_.text.size()];
    return static_cast<Token>(uniform(1, static_cast<std::uint64_t>(drawn_++)) *
                              static_cast<double>(runner_.vocabulary()));
  }

  // Appends `tokens` to each sequence, as many rows a step as the runner takes, and picks the next token
  // after the last row of each, as a generating engine does.
  void feed(std::span<Sequence> sequences, std::int64_t tokens) {
    const std::int64_t most =
        std::max<std::int64_t>(1, runner_.max_rows() / static_cast<std::int64_t>(sequences.size()));
    while (tokens > 0) {
      const std::int64_t rows = std::min(tokens, most);
      builder_.clear();
      for (Sequence& sequence : sequences) {
        // Nobody shares these sequences: there is nothing to copy.
        [[maybe_unused]] const auto copy = sequence.extend(rows);
        assert(!copy);
        tokens_.clear();
        for (std::int64_t i = 0; i < rows; ++i) tokens_.push_back(next_token());
        const auto first = builder_.add(sequence, sequence.length() - rows, tokens_);
        if (rows == tokens) builder_.want(first + static_cast<std::int32_t>(rows) - 1);
      }
      runner_.forward(builder_.batch());
      tokens -= rows;
    }
    rows_.resize(sequences.size());
    std::iota(rows_.begin(), rows_.end(), 0);
    greedy_.resize(sequences.size());
    runner_.greedy(rows_, greedy_);
  }

  template <class Work>
  BenchmarkResult measure(std::string name, std::int64_t tokens, Work&& work, std::int64_t steps,
                          std::int64_t context, std::int64_t sequences, bool decode) {
    work();  // warm-up: scratch memory grows, pages are touched
    const auto before = runner_.decoder().neuron_counts();
    std::vector<double> seconds;
    for (std::int64_t repeat = 0; repeat < options_.repeats; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      work();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    const auto after = runner_.decoder().neuron_counts();
    const auto seen = static_cast<double>(after.neurons - before.neurons);
    BenchmarkResult result;
    result.name = std::move(name);
    result.seconds = seconds[seconds.size() / 2];
    result.steps = static_cast<double>(steps);
    result.tokens_per_second = static_cast<double>(tokens) / result.seconds;
    result.active_neurons = seen > 0 ? static_cast<double>(after.active - before.active) / seen : 1;
    count_work(result, static_cast<double>(tokens), static_cast<double>(steps), static_cast<double>(context),
               static_cast<double>(sequences), decode);
    return result;
  }

  // What the repeat reads and multiplies, from the model's shape.
  void count_work(BenchmarkResult& result, double tokens, double steps, double context, double sequences,
                  bool decode) const {
    const ModelConfig& c = runner_.decoder().config();
    const double d = c.hidden_size;
    const double queries = double{1} * c.heads * c.head_dim;
    const double keys = double{1} * c.kv_heads * c.head_dim;
    const double attention_weights = c.layers * d * (2 * queries + 2 * keys);
    const double neuron_weights = c.layers * d * c.intermediate_size;
    const double head_weights = d * c.vocab_size;
    const double weights = attention_weights + 3 * neuron_weights + head_weights;
    const double width = static_cast<double>(runner_.decoder().weight_bytes()) / weights;
    const double cache = static_cast<double>(runner_.cache().shape().token_bytes()) * context * sequences;
    result.dense_bytes = weights * width + cache;
    // A neuron that any row of the step needs is read; rows are taken as independent.
    const double rows = tokens / steps;
    const double idle = std::pow(1 - result.active_neurons, rows);
    result.read_bytes = result.dense_bytes - 2 * neuron_weights * width * idle;
    const double mean_context = decode ? context : context / 2;
    result.flops = 2 * tokens *
                       (attention_weights + neuron_weights * (1 + 2 * result.active_neurons) +
                        2 * c.layers * queries * mean_context) +
                   2 * sequences * (decode ? steps : 1) * head_weights;
  }

  CpuRunner& runner_;
  const BenchmarkOptions& options_;
  BlockPool pool_;
  StepBuilder builder_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> rows_;
  std::vector<Token> greedy_;
  std::int64_t drawn_ = 0;
};

}  // namespace

void validate(const BenchmarkOptions& options, std::int64_t max_length, std::int64_t max_rows) {
  const auto check = [](std::string_view what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) fail("benchmark: ", what, " of ", value, ", expected 1 to ", most);
  };
  check("decode steps", options.decode_steps, max_length);
  check("repeats", options.repeats, std::numeric_limits<std::int32_t>::max());
  for (const std::int64_t length : options.prefill) check("a prompt", length, max_length);
  for (const std::int64_t batch : options.batches) check("a batch", batch, max_rows);
  for (const std::int64_t context : options.contexts) {
    check("a context", context, max_length);
    if (context > max_length - options.decode_steps)
      fail("benchmark: a context of ", context, " tokens and ", options.decode_steps,
           " decode steps are more than the model's ", max_length);
  }
}

std::size_t benchmark_kv_bytes(const KvShape& shape, const BenchmarkOptions& options) {
  std::int64_t blocks = 0;
  const std::int64_t size = shape.block_size;
  for (const std::int64_t length : options.prefill) blocks = std::max(blocks, (length + size - 1) / size);
  for (const std::int64_t batch : options.batches)
    for (const std::int64_t context : options.contexts)
      blocks = std::max(blocks, batch * ((context + options.decode_steps + size - 1) / size + 1));
  return checked_mul(static_cast<std::size_t>(blocks + 1), shape.block_bytes(), "benchmark: KV cache");
}

std::int32_t benchmark_sequences(const BenchmarkOptions& options) {
  std::int64_t most = 1;
  for (const std::int64_t batch : options.batches) most = std::max(most, batch);
  return checked_cast<std::int32_t>(most, "benchmark: a batch");
}

std::vector<BenchmarkResult> run_benchmark(CpuRunner& runner, const BenchmarkOptions& options) {
  validate(options, runner.max_length(), runner.max_rows());
  Benchmark benchmark(runner, options);
  std::vector<BenchmarkResult> results;
  for (const std::int64_t length : options.prefill) results.push_back(benchmark.prefill(length));
  for (const std::int64_t context : options.contexts)
    for (const std::int64_t batch : options.batches) results.push_back(benchmark.decode(batch, context));
  return results;
}

}  // namespace asynct
