#include "asynct/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

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

// The definition, spelled out: everything sorted, everything summed.
std::int32_t sample_by_sorting(const std::vector<float>& logits, const SamplingParams& params,
                               std::uint64_t step) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  std::vector<double> weights;
  for (const auto token : order)
    weights.push_back(std::exp((double{logit(token)} - logit(order[0])) / params.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  for (; count < weights.size(); kept += weights[count++])
    if (count > 0 && (weights[count] < params.min_p || (params.top_p < 1 && kept >= params.top_p * total)))
      break;
  double left = uniform(params.seed, step) * kept;
  for (std::size_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[count - 1];
}

TEST(TokenSampler, EqualsTheDefinition) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  TokenSampler sampler;
  for (int round = 0; round < 1500; ++round) {
    std::vector<float> logits(1 + random() % 3000);
    const float spread =
        random() % 2 == 0 ? 0.1F : 4.0F;  // flat, so that most of the order is needed; or not
    for (float& logit : logits) logit = spread * normal(random);
    if (random() % 3 == 0)
      for (float& logit : logits) logit = std::round(logit);  // ties
    if (logits.size() > 1 && random() % 4 == 0) logits[1] = -std::numeric_limits<float>::infinity();
    const SamplingParams params = {
        .temperature = std::exp(normal(random)),
        .top_k = random() % 2 == 0 ? 0 : static_cast<std::int32_t>(1 + random() % 600),
        .top_p = random() % 2 == 0 ? 1.0F : 0.01F + 0.98F * static_cast<float>(random() % 100) / 100,
        .min_p = random() % 2 == 0 ? 0.0F : 0.3F * static_cast<float>(random() % 100) / 100,
        .seed = random()};
    for (std::uint64_t step = 0; step < 5; ++step)
      ASSERT_EQ(sampler.sample(logits, params, step), sample_by_sorting(logits, params, step))
          << logits.size() << " tokens, temperature " << params.temperature << ", top_k " << params.top_k
          << ", top_p " << params.top_p << ", min_p " << params.min_p;
  }
}

TEST(TokenSampler, WhatIsNoNumberIsNeverChosen) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  TokenSampler sampler;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 1, .top_k = 1}}) {
    EXPECT_EQ(sampler.sample(std::vector<float>{1, kNaN, 2}, params, 0), -1);
    EXPECT_EQ(sampler.sample(std::vector<float>{1, kInfinity}, params, 0), -1);
    EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}, params, 0), -1);
    EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, 3}, params, 0), 1);
  }
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
