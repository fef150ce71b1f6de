#include "asynct/engine/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "asynct/base/error.h"

namespace asynct {
namespace {

std::map<std::int32_t, int> draw(std::vector<float> logits, const SamplingParams& params, int draws) {
  TokenSampler sampler;
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(logits, params, static_cast<std::uint64_t>(i))];
  return counts;
}

TEST(TokenSampler, FollowsSoftmaxByChiSquared) {
  const std::vector<float> logits = {0.5F, -1, 2, 0, 1.25F};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    constexpr int kDraws = 200000;
    auto counts = draw(logits, {.temperature = temperature, .seed = 3}, kDraws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    double chi = 0;
    for (std::size_t token = 0; token < logits.size(); ++token) {
      const double expected = kDraws * std::exp(logits[token] / temperature) / total;
      chi += std::pow(counts[static_cast<std::int32_t>(token)] - expected, 2) / expected;
    }
    EXPECT_LT(chi, 18.5);  // 4 degrees of freedom, p = 0.001
  }
}

TEST(TokenSampler, CutsTheTail) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.5F), std::log(0.25F), std::log(0.15F)};
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_k = 2}, 1000).size(), 2U);
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_k = 1}, 1000).begin()->first, 1);
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_p = 0.7F}, 1000).size(), 2U);  // 0.5 + 0.25
  EXPECT_EQ(draw(logits, {.temperature = 1, .top_p = 0.4F}, 1000).size(), 1U);
  EXPECT_EQ(draw(logits, {.temperature = 1, .min_p = 0.29F}, 1000).size(), 3U);  // 0.15 / 0.5 = 0.3 stays
  EXPECT_EQ(draw(logits, {.temperature = 1, .min_p = 1}, 1000).size(), 1U);
}

TEST(TokenSampler, UniformIsUniformAndCounterBased) {
  int bins[10] = {};
  for (std::uint64_t step = 0; step < 100000; ++step) {
    const double u = uniform(42, step);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<int>(u * 10)];
  }
  for (const int bin : bins) EXPECT_NEAR(bin, 10000, 400);
  EXPECT_EQ(uniform(1, 2), uniform(1, 2));
  EXPECT_NE(uniform(1, 2), uniform(2, 1));
}

TEST(Sampling, ParametersAreChecked) {
  EXPECT_THROW(validate({.temperature = -0.1F}), Error);
  EXPECT_THROW(validate({.temperature = std::numeric_limits<float>::quiet_NaN()}), Error);
  EXPECT_THROW(validate({.top_k = -1}), Error);
  EXPECT_THROW(validate({.top_p = 0}), Error);
  EXPECT_THROW(validate({.top_p = 1.5F}), Error);
  EXPECT_THROW(validate({.min_p = -1}), Error);
  EXPECT_NO_THROW(validate({.temperature = 1, .top_k = 5, .top_p = 0.5F, .min_p = 0.1F}));
}

}  // namespace
}  // namespace asynct
