// Choosing a token in steady state takes no memory.
#include <gtest/gtest.h>

#include <random>

#include "asynct/engine/allocation_counter.h"
#include "asynct/engine/logits_processor.h"
#include "asynct/engine/logprobs.h"

namespace asynct {
namespace {

TEST(Allocation, ChoosingATokenHasNone) {
  constexpr std::size_t kVocabulary = 5000;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const SamplingParams cases[] = {
      {.temperature = 1, .top_k = 50, .top_p = 0.9F, .repetition_penalty = 1.2F},
      {.temperature = 1, .frequency_penalty = 0.5F, .bad_words = {{1}, {2, 3}}},
      {.temperature = 1, .top_p = 0.99F, .min_p = 0.001F, .logit_bias = {{5, 3}}},
  };
  for (const SamplingParams& params : cases) {
    LogitsProcessor processor(params, std::vector<Token>(100, 7), std::vector<Token>{0});
    TokenSampler sampler;
    std::vector<TokenLogprob> logprobs;
    std::vector<float> logits(kVocabulary);
    const auto steps = [&](std::uint64_t begin, std::uint64_t end) {
      const std::int64_t before = allocations();
      for (std::uint64_t step = begin; step < end; ++step) {
        for (float& logit : logits) logit = normal(random);
        EXPECT_TRUE(top_logprobs(logits, kMaxTopLogprobs, 3, logprobs));
        processor.apply(logits);
        processor.accept(sampler.sample(logits, params, step));
      }
      return allocations() - before;
    };
    EXPECT_GT(steps(0, 50), 0) << "nothing is counted";
    EXPECT_EQ(steps(50, 250), 0);  // fewer tokens than a processor makes room for
  }
}

}  // namespace
}  // namespace asynct
