#include "asynct/ops/head/head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "asynct/base/strings.h"
#include "asynct/ops/testing/testing.h"

namespace asynct {
namespace {

using namespace asynct::testing;

constexpr std::array kThreads{1, 2, 3, 7};

struct Reference {
  double log_sum = 0;
  std::int32_t argmax = 0;
  std::vector<double> logits;
};

// One row in double.
Reference reference(const float* hidden, const Tensor& weight) {
  const TensorView view = weight.view();
  Reference row;
  double sum = 0;
  for (std::int64_t v = 0; v < view.shape[0]; ++v) {
    double logit = 0;
    for (std::int64_t k = 0; k < view.shape[1]; ++k)
      logit += double{hidden[k]} * view.at(v * view.shape[1] + k);
    row.logits.push_back(logit);
    if (logit > row.logits[static_cast<std::size_t>(row.argmax)]) row.argmax = static_cast<std::int32_t>(v);
    sum += std::exp(logit);
  }
  row.log_sum = std::log(sum);
  return row;
}

// Two targets for each even row (first and last token for the first of them), one for rows divisible by 3.
std::vector<ScoreTarget> some_targets(Random& random, std::int32_t rows, std::int32_t vocabulary) {
  std::vector<ScoreTarget> targets;
  const auto token = [&] { return std::uniform_int_distribution<std::int32_t>(0, vocabulary - 1)(random); };
  for (std::int32_t row = 0; row < rows; ++row) {
    if (row % 2 == 0) targets.push_back({row, row == 0 ? 0 : token()});
    if (row % 2 == 0) targets.push_back({row, row == 0 ? vocabulary - 1 : token()});
    if (row % 3 == 0) targets.push_back({row, token()});
  }
  return targets;
}

TEST(Head, AgreesWithTheReference) {
  struct Case {
    std::int32_t rows, inputs, vocabulary;
  };
  for (const Case& c :
       {Case{1, 5, 1}, Case{3, 64, 16}, Case{2, 33, 513}, Case{9, 48, 1031}, Case{130, 20, 700}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      Random random(1);
      const Tensor weight = random_tensor(random, dtype, {c.vocabulary, c.inputs}, 0.4F);
      GuardedMatrix hidden(c.rows, c.inputs, 3);
      hidden.fill(random);
      std::vector<Reference> expected;
      expected.reserve(static_cast<std::size_t>(c.rows));
      for (std::int32_t r = 0; r < c.rows; ++r) expected.push_back(reference(hidden.matrix().row(r), weight));
      const std::vector<ScoreTarget> targets = some_targets(random, c.rows, c.vocabulary);
      for (const Isa isa : test_isas())
        for (const int threads : kThreads) {
          SCOPED_TRACE(
              cat(name(isa), " ", name(dtype), ", ", threads, " threads, vocabulary ", c.vocabulary));
          ThreadPool pool(threads);
          OpContext context(pool, isa, Precision::fp32);
          const Head head(context, weight.view());
          std::vector<TokenScore> scores(targets.size(), {NAN, -7});
          head.score(context, hidden.matrix(), targets, scores);
          for (std::size_t t = 0; t < targets.size(); ++t) {
            const Reference& row = expected[static_cast<std::size_t>(targets[t].row)];
            const double logprob = row.logits[static_cast<std::size_t>(targets[t].token)] - row.log_sum;
            EXPECT_NEAR(scores[t].logprob, logprob, 2e-6 * std::max(1.0, std::abs(logprob)));
            EXPECT_EQ(scores[t].argmax, row.argmax);
          }
          std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.rows), -7);
          head.greedy(context, hidden.matrix(), tokens);
          GuardedMatrix logits(c.rows, c.vocabulary, 1);
          head.logits(context, hidden.matrix(), logits.matrix());
          for (std::int32_t r = 0; r < c.rows; ++r) {
            const Reference& row = expected[static_cast<std::size_t>(r)];
            EXPECT_EQ(tokens[static_cast<std::size_t>(r)], row.argmax);
            EXPECT_LT(relative_error(logits.matrix().slice_rows(r, 1), row.logits), 2e-6);
          }
          EXPECT_TRUE(logits.canaries_alive());
        }
    }
}

TEST(Head, AScoreDoesNotKnowItsBatch) {
  constexpr std::int32_t kRows = 125;
  constexpr std::int32_t kVocabulary = 1300;
  Random random(2);
  const Tensor weight = random_tensor(random, DType::bf16, {kVocabulary, 40}, 0.3F);
  GuardedMatrix hidden(kRows, 40, 0);
  hidden.fill(random, Precision::bf16);  // for both precisions
  const std::vector<ScoreTarget> targets = some_targets(random, kRows, kVocabulary);
  const auto check = [&](Isa isa, Precision precision) {
    ThreadPool one(1);
    OpContext alone(one, isa, precision);
    const Head head(alone, weight.view());
    std::vector<TokenScore> expected(targets.size());
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const ScoreTarget target{0, targets[t].token};
      head.score(alone, hidden.matrix().slice_rows(targets[t].row, 1), {&target, 1}, {&expected[t], 1});
    }
    for (const int threads : kThreads) {
      ThreadPool pool(threads);
      OpContext context(pool, isa, precision);
      std::vector<TokenScore> scores(targets.size());
      head.score(context, hidden.matrix(), targets, scores);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        EXPECT_TRUE(same_bits(&scores[t].logprob, &expected[t].logprob, 1)) << name(isa) << " " << t;
        EXPECT_EQ(scores[t].argmax, expected[t].argmax);
      }
    }
  };
  for (const Isa isa : test_isas()) {
    check(isa, Precision::fp32);
    check(isa, Precision::bf16);
  }
}

// What is made of kept logits is what was made of them on the fly.
TEST(Head, KeptRowsHaveTheSameStatistics) {
  for (const std::int32_t vocabulary : {1, 16, 511, 512, 513, 1300}) {
    Random random(static_cast<std::uint32_t>(vocabulary));
    const Tensor weight = random_tensor(random, DType::f32, {vocabulary, 24}, 0.7F);
    GuardedMatrix hidden(8, 24, 0);
    hidden.fill(random);
    const std::vector<ScoreTarget> targets = some_targets(random, 8, vocabulary);
    for (const Isa isa : test_isas()) {
      ThreadPool pool(1);
      OpContext context(pool, isa, Precision::fp32);
      const Head head(context, weight.view());
      std::vector<TokenScore> scores(targets.size());
      head.score(context, hidden.matrix(), targets, scores);
      GuardedMatrix logits(8, vocabulary, 0);
      head.logits(context, hidden.matrix(), logits.matrix());
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const float* const row = logits.matrix().row(targets[t].row);
        const std::span<const float> kept(row, static_cast<std::size_t>(vocabulary));
        const RowStats stats = row_stats(isa, kept);
        const auto logprob = static_cast<float>(row[targets[t].token] - stats.log_sum);
        EXPECT_TRUE(same_bits(&logprob, &scores[t].logprob, 1)) << name(isa) << " " << vocabulary;
        EXPECT_EQ(stats.argmax, scores[t].argmax);
        EXPECT_EQ(stats.max, row[stats.argmax]);
        EXPECT_EQ(row_largest(isa, kept).argmax, stats.argmax);
      }
    }
  }
  for (const Isa isa : test_isas())
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> row(600, -INFINITY);
      row[599] = bad;
      EXPECT_EQ(row_largest(isa, row).argmax, -1);
      EXPECT_EQ(row_stats(isa, row).argmax, -1);
      EXPECT_TRUE(std::isnan(row_stats(isa, row).log_sum));
      row[599] = 2;  // alone after a piece of nothing
      EXPECT_EQ(row_stats(isa, row).argmax, 599);
      EXPECT_EQ(row_stats(isa, row).log_sum, 2);
    }
}

TEST(Head, MassOfARow) {
  Random random(4);
  std::normal_distribution<float> normal(0, 3);
  for (const std::size_t size : {1U, 7U, 8U, 255U, 256U, 257U, 3001U})
    for (const double scale : {0.01, 1.0, 1.25, 500.0}) {
      std::vector<float> row(size);
      for (float& logit : row) logit = normal(random);
      if (size > 8) row[3] = -INFINITY;
      const float max = *std::max_element(row.begin(), row.end());
      double expected = 0;
      for (const float logit : row) expected += std::exp((double{logit} - max) * scale);
      const double mass = row_mass(Isa::scalar, row, max, scale);
      EXPECT_NEAR(mass / expected, 1, 1e-14);
      for (const Isa isa : test_isas()) EXPECT_EQ(row_mass(isa, row, max, scale), mass) << name(isa);
    }
  const float one[] = {-3};
  EXPECT_EQ(row_mass(Isa::scalar, one, -3, 1), 1);
}

// A row of the identity picks a column of the weights, so logits can be written down.
TEST(Head, FirstOfEqualLogitsAndNanRows) {
  constexpr std::int64_t kVocabulary = 1100;
  Tensor weight(DType::f32, {kVocabulary, 3});
  for (std::int64_t v = 0; v < kVocabulary; ++v) {
    float* const row = weight.values<float>().data() + v * 3;
    row[0] = v == 520 || v == 530 || v == 1040 ? 9.0F : -1000.0F;  // ties in one piece and across pieces
    row[1] = 0;
    row[2] = v == 1099 ? NAN : 1.0F;
  }
  const float hidden[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  // NaN * 0 is NaN, so only the first two rows of a weight without NaN are finite.
  Tensor clean(DType::f32, {kVocabulary, 3});
  for (std::int64_t i = 0; i < kVocabulary * 3; ++i) {
    const float value = weight.values<float>()[static_cast<std::size_t>(i)];
    clean.values<float>()[static_cast<std::size_t>(i)] = std::isnan(value) ? 0 : value;
  }
  for (const Isa isa : test_isas()) {
    ThreadPool pool(2);
    OpContext context(pool, isa, Precision::fp32);
    const ScoreTarget targets[] = {{0, 520}, {0, 7}, {1, 3}};
    TokenScore scores[3];
    const Head head(context, clean.view());
    head.score(context, {hidden, 3, 3}, targets, scores);
    EXPECT_EQ(scores[0].argmax, 520);
    EXPECT_NEAR(scores[0].logprob, -std::log(3.0), 1e-6);
    EXPECT_NEAR(scores[1].logprob, -1009 - std::log(3.0), 1e-3);
    EXPECT_EQ(scores[2].argmax, 0);
    EXPECT_NEAR(scores[2].logprob, -std::log(1100.0), 1e-6);

    const Head broken(context, weight.view());
    broken.score(context, {hidden, 3, 3}, targets, scores);
    std::int32_t tokens[3];
    broken.greedy(context, {hidden, 3, 3}, tokens);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(scores[i].argmax, -1);
      EXPECT_TRUE(std::isnan(scores[i].logprob));
      EXPECT_EQ(tokens[i], -1);
    }
  }
}

}  // namespace
}  // namespace asynct
