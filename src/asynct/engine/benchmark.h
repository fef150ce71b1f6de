#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asynct/engine/cpu_runner.h"
#include "asynct/text/token.h"

namespace asynct {

struct BenchmarkOptions {
  std::vector<std::int64_t> prefill = {512};   // tokens of a prompt
  std::vector<std::int64_t> batches = {1, 8};  // sequences that decode at once
  std::vector<std::int64_t> contexts = {512};  // tokens each of them has
  std::int64_t decode_steps = 32;
  std::int64_t repeats = 3;
  std::vector<Token> text;  // what the sequences hold, repeated as needed; empty: random tokens
};

/// One row of the table. Rates are medians of the repeats.
struct BenchmarkResult {
  std::string name;    // "prefill 512", "decode 8 x 512"
  double seconds = 0;  // a repeat
  double steps = 0;    // forward passes a repeat
  double tokens_per_second = 0;
  double dense_bytes = 0;     // weights and cache that a dense model reads a step
  double read_bytes = 0;      // the same less the rows of inactive neurons
  double flops = 0;           // of a repeat, inactive neurons left out
  double active_neurons = 0;  // share; 1 without ReGLU
};

/// Error naming the size that a model with contexts of `max_length` tokens and `max_rows` rows a step cannot
/// run, before anything is allocated for it.
void validate(const BenchmarkOptions& options, std::int64_t max_length, std::int64_t max_rows);

/// KV bytes that the largest row of a benchmark needs; the options are valid. Error: more than 64 bits count.
std::size_t benchmark_kv_bytes(const KvShape& shape, const BenchmarkOptions& options);

/// Sequences that decode at once in the largest row: what the runner's max_sequences must be.
std::int32_t benchmark_sequences(const BenchmarkOptions& options);

/// Prefill and decode rates of a model on this machine; its cache has benchmark_kv_bytes().
std::vector<BenchmarkResult> run_benchmark(CpuRunner& runner, const BenchmarkOptions& options);

}  // namespace asynct
