#include "asynct/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "asynct/base/error.h"
#include "asynct/base/json.h"

namespace asynct {
namespace {

std::map<std::int32_t, int> draw(std::vector<float> logits, const SamplingParams& params, int draws) {
  TokenSampler sampler;
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(logits, params, static_cast<std::uint64_t>(i))];
  return counts;
}

// Pearson's statistic against exact probabilities, tokens of probability 0 never drawn; tokens of fewer than
// 5 expected draws are counted together. Expects it below the 0.999 quantile of its distribution (Wilson and
// Hilferty's approximation).
void expect_distribution(const std::map<std::int32_t, int>& counts,
                         const std::vector<double>& probabilities) {
  const int draws = std::accumulate(counts.begin(), counts.end(), 0,
                                    [](int sum, const auto& entry) { return sum + entry.second; });
  double chi = 0;
  int degrees = -1;
  const auto add = [&](double count, double expected) {
    ++degrees;
    chi += std::pow(count - expected, 2) / expected;
  };
  double rare = 0;
  double rare_expected = 0;
  for (std::size_t token = 0; token < probabilities.size(); ++token) {
    const auto found = counts.find(static_cast<std::int32_t>(token));
    const int count = found == counts.end() ? 0 : found->second;
    const double expected = draws * probabilities[token];
    if (expected == 0) {
      EXPECT_EQ(count, 0) << "token " << token << " has been cut off";
    } else if (expected < 5) {
      rare += count;
      rare_expected += expected;
    } else {
      add(count, expected);
    }
  }
  if (rare_expected >= 5) {
    add(rare, rare_expected);
  } else {
    EXPECT_LE(rare, 20);
  }
  if (degrees == 0) return;
  const double c = 2.0 / (9 * degrees);
  EXPECT_LT(chi, degrees * std::pow(1 - c + 3.09 * std::sqrt(c), 3)) << degrees << " degrees of freedom";
}

// Straight from the definitions, in double: softmax, top-k, top-p, min-p, each over what is left.
std::vector<double> probabilities_of(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  std::vector<double> weights(logits.size(), 0);
  for (const auto token : order)
    weights[token] = std::exp((double{logits[token]} - logits[order[0]]) / params.temperature);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double nucleus = 0;
  for (const auto token : order) {
    const bool enough = params.top_p < 1 && nucleus >= params.top_p * total;
    nucleus += weights[token];
    if (enough || weights[token] < params.min_p) weights[token] = 0;
  }
  const double kept = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= kept;
  return weights;
}

TEST(TokenSampler, FollowsTheDistributionByChiSquared) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  for (const std::size_t vocabulary : {5U, 60U, 1200U}) {  // the last: more than are looked at first
    std::vector<float> logits(vocabulary);
    for (float& logit : logits) logit = normal(random);
    for (const SamplingParams& params : {
             SamplingParams{.temperature = 0.5F, .seed = 1},
             SamplingParams{.temperature = 1, .seed = 2},
             SamplingParams{.temperature = 2, .seed = 3},
             SamplingParams{.temperature = 1, .top_k = 3, .seed = 4},
             SamplingParams{.temperature = 0.8F, .top_k = 50, .top_p = 0.95F, .seed = 5},
             SamplingParams{.temperature = 1.5F, .top_p = 0.7F, .seed = 6},
             SamplingParams{.temperature = 1, .min_p = 0.1F, .seed = 7},
             SamplingParams{.temperature = 1.2F, .top_k = 40, .top_p = 0.9F, .min_p = 0.05F, .seed = 8},
         }) {
      SCOPED_TRACE(params.seed);
      expect_distribution(draw(logits, params, vocabulary > 1000 ? 8000 : 20000),
                          probabilities_of(logits, params));
    }
  }
}

// Against the probabilities that transformers' warpers leave (tests/golden/make_sampling.py).
TEST(TokenSampler, FollowsTransformersByChiSquared) {
  const Json golden = parse_json_file("tests/golden/sampling.json");
  ASSERT_GE(golden["distributions"].size(), 10U);
  for (const Json& one : golden["distributions"]) {
    const Json& given = one["params"];
    SCOPED_TRACE(given.dump());
    const SamplingParams params{.temperature = given["temperature"].get<float>(),
                                .top_k = given.value("top_k", 0),
                                .top_p = given.value("top_p", 1.0F),
                                .min_p = given.value("min_p", 0.0F),
                                .seed = 11};
    const auto logits = one["logits"].get<std::vector<float>>();
    const auto expected = one["probabilities"].get<std::vector<double>>();
    expect_distribution(draw(logits, params, 20000), expected);
    const auto exact = probabilities_of(logits, params);
    for (std::size_t token = 0; token < exact.size(); ++token)
      EXPECT_NEAR(exact[token], expected[token], 1e-6);
  }
}

// Seeds of one step, as requests of one batch have them, are as independent as steps of one seed.
TEST(TokenSampler, SeedsAreIndependent) {
  const std::vector<float> logits{0, 1, 0.5F, -1};
  TokenSampler sampler;
  std::map<std::int32_t, int> counts;
  for (std::uint64_t seed = 0; seed < 40000; ++seed)
    ++counts[sampler.sample(logits, {.temperature = 1, .seed = seed}, 0)];
  expect_distribution(counts, probabilities_of(logits, {.temperature = 1}));
}

TEST(TokenSampler, DrawsDoNotDependOnWhatWasDrawnBefore) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  TokenSampler used;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + random() % 2000);
    for (float& logit : logits) logit = normal(random);
    const SamplingParams params{.temperature = 0.5F + static_cast<float>(random() % 4),
                                .top_k = static_cast<std::int32_t>(random() % 3 * 100),
                                .top_p = random() % 2 == 0 ? 1.0F : 0.9F,
                                .seed = random()};
    TokenSampler fresh;
    const std::uint64_t step = random();
    EXPECT_EQ(used.sample(logits, params, step), fresh.sample(logits, params, step));
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
  weights.reserve(order.size());
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
    std::vector<float> logits(1 + random() % (round % 10 == 0 ? 20000 : 3000));
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

TEST(TokenSampler, OfManyTiesTheFirst) {
  const std::vector<float> logits(3000, 1.5F);
  const auto counts = draw(logits, {.temperature = 1, .top_k = 300}, 5000);
  EXPECT_EQ(counts.rbegin()->first, 299);
  EXPECT_GT(counts.size(), 290U);
  EXPECT_GT(draw(logits, {.temperature = 1}, 5000).rbegin()->first, 2900);
}

TEST(TokenSampler, BannedTokensAreNeverDrawn) {
  std::vector<float> logits(2000, -std::numeric_limits<float>::infinity());
  for (const std::size_t allowed : {3U, 700U, 1999U}) logits[allowed] = -50;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 100}, SamplingParams{.temperature = 100, .top_k = 10},
        SamplingParams{.temperature = 100, .top_p = 0.9999F}, SamplingParams{.temperature = 100, .min_p = 1}})
    EXPECT_EQ(draw(logits, params, 1000).size(), 3U);
}

TEST(Argmax, FirstOfTheLargest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{-kInfinity, -5}), 1);
  EXPECT_EQ(argmax(std::vector<float>{1, std::nanf(""), 2}), -1);
  EXPECT_EQ(argmax(std::vector<float>{1, kInfinity}), -1);
  EXPECT_EQ(argmax(std::vector<float>{-kInfinity}), -1);
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + random() % 2000);
    for (float& logit : logits) logit = static_cast<float>(random() % 100);
    EXPECT_EQ(argmax(logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
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

// The message of the Error, "" when there is none.
std::string complaint(const SamplingParams& params, std::int64_t vocabulary = 0) {
  try {
    vocabulary > 0 ? validate(params, vocabulary) : validate(params);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Sampling, ParametersAreCheckedAndNamed) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::pair<const char*, SamplingParams> cases[] = {
      {"temperature", {.temperature = -0.1F}},
      {"temperature", {.temperature = kNaN}},
      {"top_k", {.top_k = -1}},
      {"top_p", {.top_p = 0}},
      {"top_p", {.top_p = 1.5F}},
      {"min_p", {.min_p = -1}},
      {"repetition_penalty", {.repetition_penalty = 0}},
      {"repetition_penalty", {.repetition_penalty = -1}},
      {"repetition_penalty", {.repetition_penalty = kInfinity}},
      {"repetition_penalty", {.repetition_penalty = kNaN}},
      {"presence_penalty", {.presence_penalty = 2.1F}},
      {"presence_penalty", {.presence_penalty = kNaN}},
      {"frequency_penalty", {.frequency_penalty = -2.1F}},
      {"frequency_penalty", {.frequency_penalty = kInfinity}},
      {"min_tokens", {.min_tokens = -1}},
      {"logit_bias", {.logit_bias = {{1, 100.5F}}}},
      {"logit_bias", {.logit_bias = {{1, -kInfinity}}}},
      {"logit_bias", {.logit_bias = {{1, kNaN}}}},
      {"logit_bias", {.logit_bias = std::vector<LogitBias>(kMaxLogitBiases + 1)}},
      {"bad_words", {.bad_words = {{1}, {}}}},
      {"bad_words", {.bad_words = {std::vector<Token>(kMaxBadWordTokens + 1, 1)}}},
      {"bad_words", {.bad_words = std::vector<std::vector<Token>>(kMaxBadWords + 1, {1})}},
  };
  for (const auto& [field, params] : cases) EXPECT_EQ(complaint(params).rfind(field, 0), 0U) << field;

  const std::pair<const char*, SamplingParams> ids[] = {
      {"logit_bias", {.logit_bias = {{1, 1}, {10, 1}}}},
      {"logit_bias", {.logit_bias = {{-1, 1}}}},
      {"allowed_tokens", {.allowed_tokens = {0, 10}}},
      {"allowed_tokens", {.allowed_tokens = {std::numeric_limits<Token>::min()}}},
      {"allowed_tokens", {.allowed_tokens = std::vector<Token>(11, 1)}},
      {"bad_words", {.bad_words = {{1}, {2, 10, 3}}}},
      {"bad_words", {.bad_words = {{-5}}}},
      {"min_p", {.min_p = 2}},
  };
  for (const auto& [field, params] : ids) EXPECT_EQ(complaint(params, 10).rfind(field, 0), 0U) << field;
  EXPECT_EQ(complaint({.logit_bias = {{10, 1}}}), "");  // without a vocabulary any id will do

  EXPECT_EQ(complaint({.temperature = 1,
                       .top_k = 5,
                       .top_p = 0.5F,
                       .min_p = 0.1F,
                       .repetition_penalty = 1e-3F,
                       .presence_penalty = -2,
                       .frequency_penalty = 2,
                       .min_tokens = 1LL << 40,
                       .logit_bias = std::vector<LogitBias>(kMaxLogitBiases, {9, -100}),
                       .allowed_tokens = std::vector<Token>(10, 9),
                       .bad_words = {std::vector<Token>(kMaxBadWordTokens, 9)}},
                      10),
            "");
}

}  // namespace
}  // namespace asynct
