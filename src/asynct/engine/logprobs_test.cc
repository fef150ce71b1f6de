#include "asynct/engine/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "asynct/ops/head/head.h"
#include "asynct/tensor/tensor.h"

namespace asynct {
namespace {

// All ranks, by sorting.
std::vector<TokenLogprob> ranked(const std::vector<float>& logits) {
  std::vector<TokenLogprob> order(logits.size());
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  for (std::size_t i = 0; i < logits.size(); ++i)
    order[i] = {static_cast<Token>(i), static_cast<float>(logits[i] - max - std::log(sum)), 0};
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return logits[static_cast<std::size_t>(a.token)] > logits[static_cast<std::size_t>(b.token)];
  });
  for (std::size_t i = 0; i < order.size(); ++i) order[i].rank = static_cast<std::int32_t>(i) + 1;
  return order;
}

TEST(Logprobs, EqualTheSortedList) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 3);
  std::vector<TokenLogprob> found;
  for (int round = 0; round < 600; ++round) {
    std::vector<float> logits(1 + random() % (round % 2 == 0 ? 40 : 3000));
    for (float& logit : logits) logit = normal(random);
    if (random() % 3 == 0)
      for (float& logit : logits) logit = std::round(logit);  // ties
    if (random() % 8 == 0) std::sort(logits.begin(), logits.end());
    if (logits.size() > 3 && random() % 4 == 0) logits[2] = -std::numeric_limits<float>::infinity();
    const auto n = static_cast<std::int32_t>(random() % (kMaxTopLogprobs + 1));
    const auto chosen = static_cast<Token>(random() % (logits.size() + 1)) - 1;
    const auto all = ranked(logits);
    auto expected = all;
    expected.resize(std::min(all.size(), static_cast<std::size_t>(n)));
    const auto is_chosen = [&](const TokenLogprob& entry) { return entry.token == chosen; };
    if (chosen >= 0 && std::none_of(expected.begin(), expected.end(), is_chosen))
      expected.push_back(*std::find_if(all.begin(), all.end(), is_chosen));
    ASSERT_TRUE(top_logprobs(logits, n, chosen, found));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].token, expected[i].token) << "place " << i << " of " << n;
      ASSERT_EQ(found[i].rank, expected[i].rank);
      if (std::isinf(expected[i].logprob)) {
        ASSERT_EQ(found[i].logprob, expected[i].logprob);
      } else {
        ASSERT_NEAR(found[i].logprob, expected[i].logprob, 1e-6 * std::max(1.0F, -expected[i].logprob));
      }
    }
  }
}

// An evaluation by scores and one by a server's log-probabilities must agree to the last bit.
TEST(Logprobs, HaveTheBitsOfScores) {
  constexpr std::int64_t kVocabulary = 1500;
  constexpr std::int64_t kInputs = 32;
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  Tensor weight(DType::f32, {kVocabulary, kInputs});
  for (float& value : weight.values<float>()) value = normal(random);
  std::vector<float> hidden(kInputs);
  for (float& value : hidden) value = normal(random);
  ThreadPool pool(2);
  OpContext context(pool, select_isa(), Precision::fp32);
  const Head head(context, weight.view());
  std::vector<float> logits(kVocabulary);
  head.logits(context, {hidden.data(), 1, kInputs}, {logits.data(), 1, kVocabulary});
  std::vector<TokenLogprob> found;
  for (Token token = 0; token < kVocabulary; token += 7) {
    const ScoreTarget target{0, token};
    TokenScore score;
    head.score(context, {hidden.data(), 1, kInputs}, {&target, 1}, {&score, 1});
    ASSERT_TRUE(top_logprobs(logits, 1, token, found));
    EXPECT_EQ(found[0].token, score.argmax);
    EXPECT_EQ(found.back().token, token);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found.back().logprob),
              std::bit_cast<std::uint32_t>(score.logprob));
  }
}

TEST(Logprobs, OfWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<TokenLogprob> found{{1, 1, 1}};
  for (const auto& logits : {std::vector<float>{1, std::nanf(""), 2}, std::vector<float>{1, kInfinity},
                             std::vector<float>{-kInfinity, -kInfinity}}) {
    EXPECT_FALSE(top_logprobs(logits, 2, 0, found));
    EXPECT_TRUE(found.empty());
  }
  EXPECT_TRUE(top_logprobs(std::vector<float>{-kInfinity, 3}, 0, 0, found));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].logprob, -kInfinity);
  EXPECT_EQ(found[0].rank, 2);
}

}  // namespace
}  // namespace asynct
