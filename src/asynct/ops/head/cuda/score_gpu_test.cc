// Scores on the device against sums in double, and against themselves.

#include "asynct/ops/head/cuda/score.h"

#include <algorithm>
#include <array>
#include <bit>

#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/head/cuda/policy.h"

namespace asynct::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Scored {
  std::vector<TokenScore> scores;
  std::vector<std::int32_t> argmax;
};

/// Rows [rows, vocabulary], on the device with a stride and NaN between.
Scored score(const std::vector<std::vector<float>>& rows, const std::vector<ScoreTarget>& targets,
             DType dtype) {
  const std::size_t vocabulary = rows[0].size();
  const std::size_t stride = (vocabulary + 7) / 8 * 8 + 16;
  std::vector<float> logits(rows.size() * stride, kPoison);
  for (std::size_t row = 0; row < rows.size(); ++row)
    std::copy(rows[row].begin(), rows[row].end(), logits.begin() + static_cast<std::ptrdiff_t>(row * stride));
  std::vector<std::int32_t> first_target = {0};
  for (std::size_t row = 0; row < rows.size(); ++row)
    first_target.push_back(static_cast<std::int32_t>(std::count_if(
        targets.begin(), targets.end(),
        [&](const ScoreTarget& target) { return static_cast<std::size_t>(target.row) <= row; })));
  const DeviceTensor device(logits, dtype);
  const DeviceBuffer<ScoreTarget> device_targets(targets);
  const DeviceBuffer<std::int32_t> device_first(first_target);
  const auto pieces = static_cast<std::size_t>(pieces_of(static_cast<std::int32_t>(vocabulary)));
  DeviceBuffer<LogitPiece> kept(rows.size() * pieces);
  DeviceBuffer<float> target_logits(targets.size());
  DeviceBuffer<TokenScore> scores(targets.size());
  DeviceBuffer<std::int32_t> argmax(rows.size());
  kept.fill_bytes(0xFF);
  target_logits.fill_bytes(0xFF);
  scores.fill_bytes(0xFF);
  argmax.fill_bytes(0x77);
  const LogitPiecesArgs args = {.pieces = kept.data(),
                                .target_logits = target_logits.data(),
                                .targets = device_targets.data(),
                                .first_target = targets.empty() ? nullptr : device_first.data(),
                                .rows = std::ssize(rows),
                                .vocabulary = static_cast<std::int32_t>(vocabulary)};
  run_logit_pieces(args, device.data(), static_cast<std::int64_t>(stride), dtype, nullptr);
  run_scores(args, scores.data(), argmax.data(), nullptr);
  return {scores.download(), argmax.download()};
}

double log_sum_of(const std::vector<float>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

bool same_bits(const TokenScore& a, const TokenScore& b) {
  using Words = std::array<std::uint32_t, 3>;
  return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
}

TEST(ScoreOnDevice, equals_the_reference) {
  std::mt19937 random(7);
  for (const DType dtype : kFloatTypes)
    for (const std::size_t vocabulary : {1U, 5U, 127U, 128U, 129U, 1000U, 5003U, 151936U})
      for (const float spread : {0.01F, 1.F, 5.F, 30.F}) {
        std::vector<std::vector<float>> rows;
        std::vector<ScoreTarget> targets;
        const int count = vocabulary > 100000 ? 9 : 3;
        for (int row = 0; row < count; ++row) {
          rows.push_back(random_values(random, vocabulary, dtype, spread));
          if (random() % 3 == 0)
            for (float& logit : rows.back()) logit = std::round(logit);
          if (vocabulary > 1 && random() % 3 == 0) rows.back()[1] = -kInfinity;
          const auto largest = std::max_element(rows.back().begin(), rows.back().end()) - rows.back().begin();
          if (random() % 4 == 0) continue;  // a row that nobody asks for
          for (const auto token : {std::ptrdiff_t{0}, largest, static_cast<std::ptrdiff_t>(vocabulary) - 1,
                                   static_cast<std::ptrdiff_t>(random() % vocabulary)})
            targets.push_back({row, static_cast<std::int32_t>(token)});
        }
        const Scored got = score(rows, targets, dtype);
        for (std::size_t row = 0; row < rows.size(); ++row)
          EXPECT_EQ(got.argmax[row],
                    std::max_element(rows[row].begin(), rows[row].end()) - rows[row].begin());
        for (std::size_t i = 0; i < targets.size(); ++i) {
          const std::vector<float>& row = rows[static_cast<std::size_t>(targets[i].row)];
          const double log_sum = log_sum_of(row);
          const double want = row[static_cast<std::size_t>(targets[i].token)] - log_sum;
          const int argmax = got.argmax[static_cast<std::size_t>(targets[i].row)];
          if (std::isinf(want)) {
            EXPECT_EQ(got.scores[i].logprob, -kInfinity);
          } else {
            EXPECT_NEAR(got.scores[i].logprob, want, 2e-6 + 1e-7 * std::abs(want)) << vocabulary;
          }
          EXPECT_EQ(got.scores[i].argmax, argmax);
          EXPECT_NEAR(got.scores[i].argmax_logprob, row[static_cast<std::size_t>(argmax)] - log_sum, 2e-6);
          if (targets[i].token == argmax) {
            EXPECT_EQ(got.scores[i].argmax_logprob, got.scores[i].logprob);
          }
        }
      }
}

/// Lanes hold 8 logits of 16 bits or 4 floats, a warp one run or four: the sums are the same.
TEST(ScoreOnDevice, bits_do_not_depend_on_rows_or_layout) {
  std::mt19937 random(8);
  for (const std::size_t vocabulary : {300U, 20011U}) {
    std::vector<std::vector<float>> rows;
    std::vector<ScoreTarget> targets;
    for (int row = 0; row < 12; ++row) {
      rows.push_back(random_values(random, vocabulary, DType::bf16, 2));
      targets.push_back({row, static_cast<std::int32_t>(random() % vocabulary)});
    }
    const Scored narrow = score(rows, targets, DType::bf16), wide = score(rows, targets, DType::f32);
    EXPECT_EQ(narrow.argmax, wide.argmax);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      EXPECT_TRUE(same_bits(narrow.scores[row], wide.scores[row])) << row;
      const Scored alone = score({rows[row]}, {{0, targets[row].token}}, DType::bf16);
      EXPECT_TRUE(same_bits(narrow.scores[row], alone.scores[0])) << row;
    }
  }
}

TEST(ScoreOnDevice, what_is_no_number_is_never_chosen) {
  std::mt19937 random(9);
  for (const DType dtype : kFloatTypes) {
    const std::vector<float> fine = random_values(random, 1000, dtype);
    std::vector<std::vector<float>> rows(4, fine);
    rows[0][700] = kPoison;
    rows[1][3] = kInfinity;
    rows[2].assign(1000, -kInfinity);
    const Scored got = score(rows, {{0, 1}, {1, 3}, {2, 1}, {3, 1}}, dtype);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(got.argmax[i] == -1, i < 3);
      EXPECT_EQ(got.scores[i].argmax == -1, i < 3);
      EXPECT_EQ(std::isnan(got.scores[i].logprob), i < 3);
      EXPECT_EQ(std::isnan(got.scores[i].argmax_logprob), i < 3);
    }
  }
}

TEST(ScoreOnDevice, of_equal_maxima_the_first) {
  std::vector<float> row(4000, 0.F);
  row[3999] = row[2100] = row[700] = 0.5F;
  row[10] = -0.F;
  EXPECT_EQ(score({row}, {{0, 3}}, DType::bf16).argmax[0], 700);
  EXPECT_EQ(score({std::vector<float>{-0.F, 0.F}}, {{0, 0}}, DType::f32).argmax[0], 0);
}

TEST(ScoreOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> data(std::vector<float>(64, 1.F));
  const DeviceBuffer<LogitPiece> pieces(std::size_t{1});
  const auto expect = [&](auto change, std::int64_t stride, DType dtype, const char* words) {
    LogitPiecesArgs args = {.pieces = pieces.data(), .rows = 1, .vocabulary = 16};
    change(args);
    expect_error([&] { run_logit_pieces(args, data.data(), stride, dtype, nullptr); }, words);
  };
  expect([](LogitPiecesArgs&) {}, 16, DType::i64, "dtype int64");
  expect([](LogitPiecesArgs&) {}, 20, DType::bf16, "row stride of 40 bytes");
  expect([](LogitPiecesArgs&) {}, 8, DType::bf16, "rows 8 apart");
  expect([](LogitPiecesArgs& args) { args.vocabulary = 0; }, 16, DType::bf16, "vocabulary of 0");
  expect([](LogitPiecesArgs& args) { args.pieces = nullptr; }, 16, DType::bf16, "no pieces");
  expect([&](LogitPiecesArgs& args) { args.first_target = reinterpret_cast<std::int32_t*>(data.data()); }, 16,
         DType::bf16, "no targets");
}

}  // namespace
}  // namespace asynct::cuda
