// Decode against the double reference, and against itself: bits do not depend on what runs beside.

#include "asynct/ops/attention/cuda/gpu_test_case.h"
#include "asynct/ops/attention/cuda/value_density.h"
#include "asynct/ops/cuda/gpu_testing.h"

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

/// Sizes that random settings seldom meet; queries of `rows` tokens.
struct WideCase {
  std::string name;
  int group = 2, kv_heads = 1, head_dim = 128;
  std::int32_t block_size = 16;
  CacheLayout layout = CacheLayout::flash;
  DType dtype = DType::bf16;
  std::vector<std::int32_t> contexts;
  std::int32_t rows = 1;
};

std::vector<std::int32_t> around(std::int32_t border) {
  return {border - 2, border - 1, border, border + 1, border + 2};
}

std::vector<WideCase> wide_cases() {
  using enum CacheLayout;
  constexpr std::int32_t kSpanKeys = kSpanChunks * kChunkKeys;
  std::vector<WideCase> cases = {
      {"around_a_stage", 2, 2, 128, 8, own, DType::f16, around(kStageKeys)},
      {"around_a_stage_with_rows", 2, 2, 64, 16, rows, DType::bf16, around(kStageKeys), 8},
      {"around_a_chunk", 2, 2, 64, 32, pairs, DType::f16, around(kChunkKeys)},
      {"around_a_chunk_with_rows", 8, 1, 128, 16, layers, DType::bf16, around(kChunkKeys), 2},
      {"around_a_span", 2, 2, 128, 16, rows, DType::bf16, around(kSpanKeys)},
      {"around_a_span_with_rows", 5, 1, 64, 64, heads, DType::f16, around(kSpanKeys), 3},
      {"around_four_spans", 4, 1, 64, 128, pairs, DType::bf16, around(4 * kSpanKeys)},
      {"a_million_keys", 2, 1, 64, 64, layers, DType::bf16, {1 << 20}},
      {"a_million_keys_in_small_blocks", 1, 1, 128, 8, flash, DType::f16, {(1 << 20) - 1}},
  };
  for (int group = 1; group <= 8; ++group) {
    const auto g = static_cast<std::size_t>(group);
    cases.push_back({"group_of_" + std::to_string(group),
                     group,
                     3,
                     group % 2 == 0 ? 64 : 128,
                     8 << group % 5,
                     kLayouts[g % kLayouts.size()],
                     group % 3 == 0 ? DType::f16 : DType::bf16,
                     {1, 63, 200, 1025, 1500},
                     std::min(5, kDecodeRows / group)});
  }
  WideCase batch = {.name = "batch_of_1024", .kv_heads = 2};
  for (std::int32_t i = 0; i < 1024; ++i) batch.contexts.push_back(1 + i * 37 % 300);
  cases.push_back(batch);
  return cases;
}

class DecodeWide : public ::testing::TestWithParam<WideCase> {};

TEST_P(DecodeWide, equals_the_reference) {
  const WideCase& wide = GetParam();
  Random random(1);
  Setting setting = {.dtype = wide.dtype, .layout = wide.layout, .block_size = wide.block_size};
  setting.config = {.heads = wide.group * wide.kv_heads,
                    .kv_heads = wide.kv_heads,
                    .head_dim = wide.head_dim,
                    .scale = 1 / static_cast<float>(wide.head_dim)};
  for (int h = 0; h < setting.config.heads; ++h)
    setting.params.sigma.push_back(0.3F + 0.1F * static_cast<float>(h % 8));
  std::vector<TestSequence> sequences;
  for (const std::int32_t context : wide.contexts)
    sequences.push_back(long_sequence(random, setting, context, std::min(wide.rows, context)));
  const std::vector<std::uint16_t> all = decode(setting, sequences);
  expect_close(setting, sequences, all);
  setting.skip_values = true;
  EXPECT_EQ(decode(setting, sequences), all);
}

INSTANTIATE_TEST_SUITE_P(Table, DecodeWide, ::testing::ValuesIn(wide_cases()),
                         [](const auto& info) { return info.param.name; });

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
      other.layout = pick_of(random, kLayouts);
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
    sequences.reserve(280);
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

Setting half_dead_setting(int dims, float sigma) {
  Setting setting;
  setting.config = {.heads = 4, .kv_heads = 2, .head_dim = dims, .scale = 0.1F};
  setting.params.sigma.assign(4, sigma);
  return setting;
}

/// The first `dead` keys point away from the query, all others the same way.
TestSequence half_dead_sequence(Random& random, const Setting& setting, std::int32_t context,
                                std::int32_t dead) {
  TestSequence s = sequence_of(random, setting, context, 1);
  const auto columns =
      static_cast<std::size_t>(std::int64_t{setting.config.kv_heads} * setting.config.head_dim);
  std::fill(s.q.begin(), s.q.end(), 1.F);
  for (std::size_t i = 0; i < s.keys.size(); ++i)
    s.keys[i] = std::copysign(s.keys[i], i < static_cast<std::size_t>(dead) * columns ? -1.F : 1.F);
  return s;
}

TEST(DecodeSkips, values_that_no_row_gives_weight_are_not_read) {
  Random random(5);
  for (const int dims : {64, 128}) {
    Setting setting = half_dead_setting(dims, 0.5F);
    const std::int32_t dead = 1000;
    const TestSequence s = half_dead_sequence(random, setting, 1500, dead);
    const std::vector<std::uint16_t> clean = decode(setting, {s});
    expect_close(setting, {s}, clean);
    for (const bool skip : {false, true}) {
      setting.skip_values = skip;
      EXPECT_EQ(decode(setting, {s}, dead), clean);  // NaN in their values changes nothing
    }
  }
}

TEST(DecodeSkips, counts_keys_that_are_seen_and_needed) {
  Random random(12);
  for (const bool skip : {false, true}) {
    Setting setting = half_dead_setting(64, 0);
    setting.skip_values = skip;
    const DecodeLaunch launch(
        setting, {half_dead_sequence(random, setting, 1500, 1000), half_dead_sequence(random, setting, 70, 0),
                  half_dead_sequence(random, setting, 2100, 2100)});
    DecodeArgs args = launch.args;
    args.value_count = launch.value_count.data();
    for (std::uint64_t launches = 1; launches <= 2; ++launches) {
      run_decode(args, setting.dtype, 64, setting.config.pool_size, nullptr);
      const std::uint64_t count = launch.value_count.download()[0];
      EXPECT_EQ(count >> 32, launches * 2 * (1500 + 70 + 2100));
      EXPECT_EQ(count & 0xFFFFFFFF, launches * 2 * (500 + 70));
    }
  }
}

/// As a runner does it: the choice follows what was counted and changes no bit.
TEST(DecodeSkips, are_chosen_by_what_was_counted) {
  Random random(13);
  const Setting setting = half_dead_setting(128, 0.5F);
  ValueDensity density;
  std::uint64_t counted = 0;
  for (const std::int32_t dead : {2500, 0}) {
    DecodeLaunch launch(setting, {half_dead_sequence(random, setting, 3000, dead)});
    launch.value_count.upload({&counted, 1});
    DecodeArgs args = launch.args;
    args.value_count = launch.value_count.data();
    std::vector<std::uint16_t> before;
    for (int step = 0; step < 60; ++step) {
      args.skip_values = density.skips(args.unit_count, 1);  // as if they were many
      run_decode(args, setting.dtype, 128, setting.config.pool_size, nullptr);
      const std::vector<std::uint16_t> out = launch.out.download();
      EXPECT_TRUE(step == 0 || out == before) << "step " << step;
      before = out;
      counted = launch.value_count.download()[0];
      density.observe(counted);
    }
    EXPECT_EQ(density.skips(args.unit_count, 1), dead > 0) << density.estimate();
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
    expect_error([&] { run_decode(args, dtype, dims, pool, nullptr); }, words);
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
