// Decoding in steady state takes no memory: nothing is allocated step by step. A binary of its own, because
// it counts through the global operator new.
#include <gtest/gtest.h>

#include <tuple>

#include "asynct/engine/allocation_counter.h"
#include "asynct/engine/cpu_runner.h"
#include "asynct/engine/engine.h"

namespace asynct {
namespace {

class Silent : public EngineListener {
 public:
  void on_scores(RequestId /*id*/, std::size_t /*first*/, std::span<const TokenScore> /*scores*/) override {}
  bool on_token(RequestId /*id*/, Token /*token*/, std::span<const TokenLogprob> /*logprobs*/) override {
    return true;
  }
  void on_finished(RequestId /*id*/, FinishReason /*reason*/, std::string_view error) override {
    EXPECT_EQ(error, "");
  }
};

// Of `steps` steps, those that allocated.
int allocating_steps(Engine& engine, EngineListener& listener, int steps) {
  int count = 0;
  for (int step = 0; step < steps; ++step) {
    const std::int64_t before = allocations();
    EXPECT_TRUE(engine.step(listener));
    count += allocations() > before ? 1 : 0;
  }
  return count;
}

class Allocation : public testing::TestWithParam<std::tuple<int, bool>> {};  // by threads, prefix cache

TEST_P(Allocation, SteadyDecodeHasNone) {
  constexpr int kWarmUp = 64;
  constexpr int kSteps = 256;
  const auto [threads, prefix_cache] = GetParam();
  CpuRunner runner("models/asynct-tiny",
                   {.threads = threads, .isa = select_isa(), .max_rows = 64, .kv_bytes = 32 << 20});
  Engine engine(runner, {.blocks = runner.cache().blocks(),
                         .block_size = 16,
                         .batch_tokens = 64,
                         .prefix_cache = prefix_cache});
  Silent listener;
  for (int i = 0; i < 6; ++i)  // prompts of many lengths, some greedy, some drawn, in turn
    engine.submit({{.tokens = std::vector<Token>(static_cast<std::size_t>(1 + 9 * i), 17 + i),
                    .max_new_tokens = 600,
                    .sampling = {.temperature = i % 2 == 0 ? 0.0F : 0.8F, .top_p = 0.9F}}});
  ASSERT_GT(allocating_steps(engine, listener, kWarmUp), 0) << "nothing is counted";
  EXPECT_EQ(allocating_steps(engine, listener, kSteps), 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, Allocation, testing::Combine(testing::Values(1, 2), testing::Bool()));

}  // namespace
}  // namespace asynct
