#include "asynct/engine/benchmark.h"

#include <gtest/gtest.h>

#include <limits>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

std::string refusal(const BenchmarkOptions& options) {
  try {
    validate(options, /*max_length=*/1000, /*max_rows=*/64);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Benchmark, SizesAreCheckedWithoutOverflow) {
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.prefill = {1, 1000}, .batches = {64}, .contexts = {968}}), "accepted");
  EXPECT_EQ(refusal({.contexts = {969}}),
            "benchmark: a context of 969 tokens and 32 decode steps are more than the model's 1000");
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-5}, kHuge, -kHuge - 1}) {
    EXPECT_NE(refusal({.prefill = {wrong}}).find(cat("a prompt of ", wrong)), std::string::npos);
    EXPECT_NE(refusal({.batches = {1, wrong}}).find(cat("a batch of ", wrong)), std::string::npos);
    EXPECT_NE(refusal({.contexts = {wrong}}).find(cat("a context of ", wrong)), std::string::npos);
    EXPECT_NE(refusal({.decode_steps = wrong}).find(cat("decode steps of ", wrong)), std::string::npos);
    EXPECT_NE(refusal({.repeats = wrong}).find(cat("repeats of ", wrong)), std::string::npos);
  }
}

TEST(Benchmark, TheCacheHoldsTheLargestTest) {
  const KvShape shape = {.layers = 2, .kv_heads = 3, .head_dim = 8, .block_size = 16};
  // A fork of each sequence writes into a copy of its last block.
  EXPECT_EQ(
      benchmark_kv_bytes(shape, {.prefill = {40}, .batches = {1, 2}, .contexts = {17}, .decode_steps = 16}),
      (2 * (3 + 1) + 1) * shape.block_bytes());
  const KvShape wide = {.layers = 1 << 20, .kv_heads = 1 << 8, .head_dim = 1 << 8};
  EXPECT_THROW(benchmark_kv_bytes(wide, {.batches = {1 << 20}, .contexts = {1 << 20}}), Error);
}

TEST(Benchmark, TheRunnerIsPlannedForTheLargestBatch) {
  EXPECT_EQ(benchmark_sequences({.batches = {1, 1024, 8}}), 1024);
  EXPECT_EQ(benchmark_sequences({.batches = {}}), 1);
}

}  // namespace
}  // namespace asynct
