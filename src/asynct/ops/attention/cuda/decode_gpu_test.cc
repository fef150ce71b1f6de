// Decode against the double reference, and against itself: bits do not depend on what runs beside.

#include "asynct/ops/attention/cuda/gpu_test_case.h"

namespace asynct::cuda {
namespace {

class DecodeCase : public ::testing::TestWithParam<int> {};

TEST_P(DecodeCase, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const Setting setting = random_setting(random);
  const int most_rows = kDecodeRows / (setting.config.heads / setting.config.kv_heads);
  std::vector<TestSequence> sequences;
  for (int i = pick(random, 1, 5); i > 0; --i) {
    const std::int32_t context = random_context(random);
    const std::int32_t rows = pick(random, 0, 2) == 0 ? pick(random, 1, most_rows) : 1;
    sequences.push_back(sequence_of(random, setting, context, std::min(rows, context)));
  }
  expect_close(setting, sequences, decode(setting, sequences));
}

INSTANTIATE_TEST_SUITE_P(Random, DecodeCase, ::testing::Range(0, 150));

TEST(DecodeBits, do_not_depend_on_batch_plan_layout_or_placement) {
  Random random(3);
  for (int round = 0; round < 12; ++round) {
    Setting setting = random_setting(random);
    const std::int32_t rows = 1;
    const std::vector<TestSequence> some = {
        sequence_of(random, setting, random_context(random), rows),
        sequence_of(random, setting, 5000 + pick(random, -300, 300), rows),
        sequence_of(random, setting, random_context(random), rows)};
    const std::vector<std::uint16_t> together = decode(setting, some);
    const std::size_t row = together.size() / some.size();
    for (std::size_t i = 0; i < some.size(); ++i) {
      Setting other = setting;
      other.skip_values = pick(random, 0, 1) == 0;
      other.block_size = pick_of<std::int32_t>(random, {8, 16, 32, 64, 128});
      other.layout = pick_of<Layout>(random, {Layout::own, Layout::flash, Layout::packed});
      other.placement = 17 + static_cast<unsigned>(round);
      const std::vector<std::uint16_t> alone = decode(other, {some[i]});
      EXPECT_TRUE(
          std::equal(alone.begin(), alone.end(), together.begin() + static_cast<std::ptrdiff_t>(i * row)))
          << "round " << round << ", sequence " << i;
    }
  }
}

/// Blocks go through several units each, rings wrap around.
TEST(Decode, many_units_a_block_equal_the_reference) {
  Random random(4);
  for (int round = 0; round < 4; ++round) {
    Setting setting = random_setting(random);
    setting.config.head_dim = round % 2 == 0 ? 64 : 128;
    const std::int32_t rows = setting.config.heads / setting.config.kv_heads <= 8 && round > 1 ? 2 : 1;
    std::vector<TestSequence> sequences;
    for (int i = 0; i < 280 / setting.config.kv_heads; ++i)
      sequences.push_back(sequence_of(random, setting, pick(random, 2, 1100), rows));
    setting.skip_values = false;
    const std::vector<std::uint16_t> all = decode(setting, sequences);
    expect_close(setting, sequences, all);
    setting.skip_values = true;
    EXPECT_EQ(decode(setting, sequences), all);
  }
}

TEST(DecodeBits, do_not_depend_on_how_many_rows_run_at_once) {
  Random random(4);
  for (int round = 0; round < 4; ++round) {
    Setting setting = random_setting(random);
    const int group = setting.config.heads / setting.config.kv_heads;
    if (group > 4) continue;
    const std::int32_t context = 700 + pick(random, 0, 600);
    const std::int32_t rows = kDecodeRows / group;
    const TestSequence whole = sequence_of(random, setting, context, rows);
    const std::vector<std::uint16_t> together = decode(setting, {whole});
    for (std::int32_t i = 0; i < rows; ++i) {
      const std::vector<std::uint16_t> alone = decode(setting, {window(whole, context - rows + i + 1, 1)});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             together.begin() + static_cast<std::ptrdiff_t>(alone.size()) * i))
          << "round " << round << ", row " << i;
    }
  }
}

TEST(DecodeSkips, values_that_no_row_gives_weight_are_not_read) {
  Random random(5);
  for (const int dims : {64, 128}) {
    Setting setting;
    setting.config = {.heads = 4, .kv_heads = 2, .head_dim = dims, .scale = 0.1F};
    setting.params.sigma.assign(4, 0.5F);
    const std::int32_t context = 1500;
    const std::int32_t dead = 1000;  // keys that point away from the query
    TestSequence s = sequence_of(random, setting, context, 1);
    const auto columns = static_cast<std::size_t>(2 * dims);
    std::fill(s.q.end() - 4 * dims, s.q.end(), 1.F);
    for (std::size_t i = 0; i < dead * columns; ++i) s.keys[i] = -std::abs(s.keys[i]);
    for (std::size_t i = dead * columns; i < s.keys.size(); ++i) s.keys[i] = std::abs(s.keys[i]);
    const std::vector<std::uint16_t> clean = decode(setting, {s});
    expect_close(setting, {s}, clean);
    for (const bool skip : {false, true}) {
      setting.skip_values = skip;
      EXPECT_EQ(decode(setting, {s}, dead), clean);  // NaN in their values changes nothing
    }
  }
}

/// A key that is no number makes the rows that see it none either, and no others.
TEST(DecodeNan, reaches_the_rows_that_see_it) {
  Random random(6);
  for (int round = 0; round < 8; ++round) {
    Setting setting = random_setting(random);
    setting.config.heads = 2 * setting.config.kv_heads;
    setting.params = {.sigma = std::vector<float>(static_cast<std::size_t>(setting.config.heads), 0.4F)};
    TestSequence s = sequence_of(random, setting, 700, 4);
    const std::size_t key = static_cast<std::size_t>(pick(random, 0, 1) == 0 ? 698 : pick(random, 0, 690));
    s.keys[key * static_cast<std::size_t>(setting.config.kv_heads * setting.config.head_dim)] = std::nanf("");
    const std::vector<std::uint16_t> out = decode(setting, {s, sequence_of(random, setting, 300, 1)});
    const auto dims = static_cast<std::size_t>(setting.config.head_dim);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / dims / static_cast<std::size_t>(setting.config.heads);
      const std::size_t head = i / dims % static_cast<std::size_t>(setting.config.heads);
      const bool sees = row < 4 && head < 2 && 696 + row >= key;  // the NaN is the first KV head's
      EXPECT_EQ(std::isnan(value_of(out[i], setting.dtype)), sees) << "row " << row << ", head " << head;
    }
  }
}

TEST(DecodeErrors, name_what_is_not_there) {
  const auto expect = [](DecodeArgs args, DType dtype, int dims, int pool, const char* words) {
    args.unit_count = 1;
    try {
      run_decode(args, dtype, dims, pool, nullptr);
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  expect({}, DType::bf16, 96, 3, "head_dim 96");
  expect({}, DType::bf16, 128, 4, "pool_size 4");
  expect({}, DType::f32, 128, 3, "dtype fp32");
  expect({.most_rows = 17}, DType::bf16, 128, 3, "17 query rows");
  DecodeArgs args;
  EXPECT_THROW(set_cache(args, {}, {}, DType::bf16, 1, 4, 1, 64), Error);
  EXPECT_THROW(set_cache(args, {}, {}, DType::bf16, 1, 24, 1, 64), Error);
}

}  // namespace
}  // namespace asynct::cuda
