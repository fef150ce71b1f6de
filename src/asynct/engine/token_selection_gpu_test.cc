// Tokens chosen on the device are the sampler's.

#include <algorithm>

#include "asynct/engine/sampling.h"
#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/token_selection/cuda/selection.h"

namespace asynct::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kVocabulary = 151936;

struct Row {
  std::vector<float> logits;
  SamplingParams params;
  std::uint64_t step = 0;
};

/// Rows of one vocabulary, on the device with a stride and NaN between.
std::vector<std::int32_t> select(const std::vector<Row>& rows, DType dtype) {
  const std::size_t vocabulary = rows[0].logits.size();
  const std::size_t stride = (vocabulary + 7) / 8 * 8 + 8;
  std::vector<float> logits(rows.size() * stride, kPoison);
  std::vector<TokenChoice> choices;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::copy(rows[row].logits.begin(), rows[row].logits.end(),
              logits.begin() + static_cast<std::ptrdiff_t>(row * stride));
    const SamplingParams& params = rows[row].params;
    choices.push_back({.seed = params.seed,
                       .step = rows[row].step,
                       .temperature = params.temperature,
                       .top_k = params.top_k,
                       .top_p = params.top_p,
                       .min_p = params.min_p});
  }
  const DeviceTensor device(logits, dtype);
  const DeviceBuffer<TokenChoice> device_choices(choices);
  DeviceBuffer<std::int32_t> tokens(rows.size());
  tokens.fill_bytes(0x77);
  run_token_selection({.logits = device.data(),
                       .choices = device_choices.data(),
                       .tokens = tokens.data(),
                       .row_stride = static_cast<std::int64_t>(stride),
                       .rows = std::ssize(rows),
                       .vocabulary = static_cast<std::int32_t>(vocabulary)},
                      dtype, nullptr);
  return tokens.download();
}

void expect_samplers_choice(const std::vector<Row>& rows, DType dtype) {
  const std::vector<std::int32_t> got = select(rows, dtype);
  TokenSampler sampler;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const std::int32_t want =
        row.params.temperature == 0 ? argmax(row.logits) : sampler.sample(row.logits, row.params, row.step);
    EXPECT_EQ(got[i], want) << name(dtype) << ", " << row.logits.size() << " tokens, temperature "
                            << row.params.temperature << ", top_k " << row.params.top_k << ", top_p "
                            << row.params.top_p << ", min_p " << row.params.min_p << ", seed "
                            << row.params.seed << ", step " << row.step;
  }
}

SamplingParams random_params(std::mt19937& random, int most_k) {
  std::normal_distribution<float> normal;
  return {.temperature = random() % 8 == 0 ? 0 : std::exp(normal(random)),
          .top_k = random() % 2 == 0 ? 0 : static_cast<std::int32_t>(1 + random() % most_k),
          .top_p = random() % 2 == 0 ? 1.0F : 0.01F + 0.98F * static_cast<float>(random() % 100) / 100,
          .min_p = random() % 2 == 0 ? 0.0F : 0.3F * static_cast<float>(random() % 100) / 100,
          .seed = random()};
}

/// Logits as the dtype has them; sometimes with ties, sometimes banned tokens.
std::vector<float> random_logits(std::mt19937& random, std::size_t vocabulary, DType dtype) {
  const float spreads[] = {0.1F, 1.F, 4.F};
  std::vector<float> logits = random_values(random, vocabulary, dtype, spreads[random() % 3]);
  if (random() % 4 == 0)
    for (float& logit : logits) logit = std::round(logit);
  if (random() % 4 == 0)
    for (std::size_t i = 1; i < logits.size(); i += 1 + random() % 3) logits[i] = -kInfinity;
  return logits;
}

TEST(TokenSelectionOnDevice, is_the_samplers_choice) {
  std::mt19937 random(10);
  for (const DType dtype : kFloatTypes)
    for (const std::size_t vocabulary : {1U, 2U, 9U, 100U, 513U, 3000U, 20000U}) {
      std::vector<Row> rows;
      rows.reserve(120);
      for (int i = 0; i < 120; ++i)
        rows.push_back({random_logits(random, vocabulary, dtype), random_params(random, 600), random()});
      expect_samplers_choice(rows, dtype);
    }
}

/// A whole vocabulary, peaked and flat: what the head decides and what it does not.
TEST(TokenSelectionOnDevice, is_the_samplers_choice_of_a_large_vocabulary) {
  std::mt19937 random(11);
  for (const DType dtype : kFloatTypes) {
    std::vector<Row> rows;
    rows.reserve(60);
    for (int i = 0; i < 60; ++i)
      rows.push_back({random_logits(random, kVocabulary, dtype),
                      random_params(random, random() % 2 == 0 ? 100 : 20000), random()});
    expect_samplers_choice(rows, dtype);
  }
}

/// Nothing but top-p, on flat and peaked rows: borders that are found by mass, near the ends too.
TEST(TokenSelectionOnDevice, is_the_samplers_choice_by_top_p) {
  std::mt19937 random(15);
  const float tops[] = {1e-4F, 0.1F, 0.5F, 0.9F, 0.99F, 0.9999F, 0.999999F, 1};
  for (const DType dtype : kFloatTypes)
    for (const std::size_t vocabulary : {1U, 40U, 3000U, 50001U}) {
      std::vector<Row> rows;
      for (const float top_p : tops)
        for (const float temperature : {0.05F, 0.7F, 1.F, 20.F})
          for (int i = 0; i < 4; ++i)
            rows.push_back({random_logits(random, vocabulary, dtype),
                            {.temperature = temperature, .top_p = top_p, .seed = random()},
                            random()});
      expect_samplers_choice(rows, dtype);
    }
}

/// More equal logits than any list holds, and a border among them.
TEST(TokenSelectionOnDevice, is_the_samplers_choice_among_equal_logits) {
  std::mt19937 random(12);
  for (const DType dtype : {DType::bf16, DType::f32}) {
    std::vector<Row> rows;
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 1, .top_k = 300},
          SamplingParams{.temperature = 2, .top_k = 30000}, SamplingParams{.temperature = 1, .top_p = 0.37F},
          SamplingParams{.temperature = 1, .min_p = 1}, SamplingParams{.temperature = 0.01F},
          SamplingParams{.temperature = 1, .top_k = 70001, .top_p = 0.9F, .min_p = 0.5F}})
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        Row row = {std::vector<float>(kVocabulary, 1.5F), params, seed};
        row.params.seed = random();
        if (seed % 2 == 1)
          for (float& logit : row.logits)
            if (random() % 3 == 0) logit = 1.25F;
        rows.push_back(row);
      }
    expect_samplers_choice(rows, dtype);
  }
}

TEST(TokenSelectionOnDevice, does_not_depend_on_the_batch) {
  std::mt19937 random(13);
  std::vector<Row> rows;
  rows.reserve(40);
  for (int i = 0; i < 40; ++i)
    rows.push_back({random_logits(random, 30001, DType::bf16), random_params(random, 3000), random()});
  const std::vector<std::int32_t> together = select(rows, DType::bf16);
  EXPECT_EQ(select(rows, DType::bf16), together);
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(select({rows[i]}, DType::bf16), std::vector<std::int32_t>{together[i]}) << i;
}

TEST(TokenSelectionOnDevice, what_is_no_number_is_never_chosen) {
  std::mt19937 random(14);
  for (const DType dtype : kFloatTypes)
    for (const float temperature : {0.F, 1.F}) {
      std::vector<Row> rows(5, {random_values(random, 5000, dtype), {.temperature = temperature}});
      rows[0].logits[4999] = kPoison;
      rows[1].logits[0] = kInfinity;
      rows[2].logits.assign(5000, -kInfinity);
      rows[3].logits.assign(5000, -kInfinity);
      rows[3].logits[77] = -50;
      const std::vector<std::int32_t> got = select(rows, dtype);
      EXPECT_EQ((std::vector<std::int32_t>(got.begin(), got.begin() + 4)),
                (std::vector<std::int32_t>{-1, -1, -1, 77}));
      EXPECT_GE(got[4], 0);
    }
}

TEST(TokenSelectionOnDevice, errors_name_what_is_wrong) {
  const DeviceBuffer<float> data(std::vector<float>(64, 1.F));
  const DeviceBuffer<TokenChoice> choices(std::size_t{1});
  const DeviceBuffer<std::int32_t> tokens(std::size_t{1});
  const auto expect = [&](auto change, DType dtype, const char* words) {
    TokenSelectionArgs args = {.logits = data.data(),
                               .choices = choices.data(),
                               .tokens = tokens.data(),
                               .row_stride = 16,
                               .rows = 1,
                               .vocabulary = 16};
    change(args);
    expect_error([&] { run_token_selection(args, dtype, nullptr); }, words);
  };
  expect([](TokenSelectionArgs&) {}, DType::i32, "dtype int32");
  expect([](TokenSelectionArgs& args) { args.row_stride = 20; }, DType::bf16, "row stride of 40 bytes");
  expect([](TokenSelectionArgs& args) { args.row_stride = 8; }, DType::bf16, "rows 8 apart");
  expect([](TokenSelectionArgs& args) { args.vocabulary = 0; }, DType::bf16, "vocabulary of 0");
  expect([](TokenSelectionArgs& args) { args.vocabulary = kMostTokens + 1; }, DType::bf16,
         "vocabulary of 524289");
  expect([](TokenSelectionArgs& args) { args.vocabulary = kMostTokens, args.row_stride = kMostTokens; },
         DType::f32, "bytes of shared memory");
  expect([](TokenSelectionArgs& args) { args.choices = nullptr; }, DType::bf16, "no choices");
  expect([](TokenSelectionArgs& args) { args.rows = -3; }, DType::bf16, "-3 rows");
}

}  // namespace
}  // namespace asynct::cuda
