#include "asynct/ops/attention/cuda/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/plain_policy.h"

namespace asynct::cuda {
namespace {

TEST(Policy, chunks_and_spans_cover_the_context) {
  EXPECT_EQ(chunks_of(1), 1);
  EXPECT_EQ(chunks_of(kChunkKeys), 1);
  EXPECT_EQ(chunks_of(kChunkKeys + 1), 2);
  EXPECT_EQ(spans_of(kChunkKeys * kSpanChunks), 1);
  EXPECT_EQ(spans_of(kChunkKeys * kSpanChunks + 1), 2);
}

/// In the order of the copy engine's box: e, t, j.
TEST(Policy, keys_of_a_tile_lie_where_a_quad_gets_four_consecutive_ones) {
  std::int32_t row = 0;
  for (std::int32_t tile = 0; tile < 3; ++tile)
    for (std::int32_t j = 0; j < 2; ++j)
      for (std::int32_t t = 0; t < 4; ++t)
        for (std::int32_t e = 0; e < 2; ++e)
          EXPECT_EQ(tile_row_of(kTileKeys * tile + 4 * t + 2 * j + e), row++);
}

TEST(DecodePlan, gives_each_chunk_to_one_unit) {
  std::mt19937 random(1);
  const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int32_t> query_start = {0};
    std::vector<std::int32_t> context;
    for (int i = pick(0, 12); i > 0; --i) {
      query_start.push_back(query_start.back() + pick(0, 3));
      context.push_back(pick(3, pick(0, 3) == 0 ? 20000 : 1500));
    }
    const std::int32_t heads = pick(1, 4);
    DecodePlan plan;
    plan.build(query_start, context, heads);
    std::set<std::tuple<int, int, int>> chunks;
    std::set<int> slots;
    std::int32_t before = kChunkKeys;
    for (const DecodeUnit& unit : plan.units) {
      const auto s = static_cast<std::size_t>(unit.sequence);
      EXPECT_EQ(unit.context, context[s]);
      EXPECT_EQ(unit.first_row, query_start[s]);
      EXPECT_EQ(unit.tokens, query_start[s + 1] - query_start[s]);
      EXPECT_GT(unit.tokens, 0);
      const std::int32_t keys = std::min(unit.context - unit.chunk * kChunkKeys, kChunkKeys);
      EXPECT_GT(keys, 0);
      EXPECT_LE(keys, before);
      before = keys;
      EXPECT_TRUE(chunks.emplace(unit.sequence, unit.kv_head, unit.chunk).second);
      EXPECT_TRUE(slots.insert(unit.first_slot + unit.chunk).second);
    }
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < context.size(); ++i)
      if (query_start[i + 1] > query_start[i])
        wanted += static_cast<std::size_t>(heads * chunks_of(context[i]));
    EXPECT_EQ(chunks.size(), wanted);
    EXPECT_EQ(plan.slots, static_cast<std::int32_t>(wanted));
    EXPECT_TRUE(slots.empty() || *slots.rbegin() < plan.slots);
  }
}

TEST(PrefillPlan, gives_each_row_to_one_unit_with_all_keys_it_sees) {
  const std::vector<std::int32_t> query_start = {0, 1, 1, 301, 700};
  const std::vector<std::int32_t> context = {50, 60, 300, 1000};
  PrefillPlan plan;
  plan.build(query_start, context, 2, 4);
  std::set<std::tuple<int, int>> rows;
  std::int32_t before = 1 << 30;
  for (const PrefillUnit& unit : plan.units) {
    const auto s = static_cast<std::size_t>(unit.sequence);
    const std::int32_t tokens = std::min(kPrefillRows / 4, unit.tokens - unit.token);
    EXPECT_EQ(unit.first_position, context[s] - unit.tokens + unit.token);
    EXPECT_EQ(unit.last_key, unit.first_position + tokens);
    EXPECT_LE(unit.last_key, before);
    before = unit.last_key;
    for (std::int32_t i = 0; i < tokens; ++i)
      EXPECT_TRUE(rows.emplace(unit.kv_head, unit.first_row + unit.token + i).second);
  }
  EXPECT_EQ(rows.size(), 1400u);
}

TEST(PlainPlan, gives_each_row_to_one_unit_of_few_rows_or_of_many) {
  const std::vector<std::int32_t> query_start = {0, 1, 1, 4, 304, 309, 325};
  const std::vector<std::int32_t> context = {2500, 60, 50, 1000, 5, 90};
  for (const std::int32_t group : {1, 2, 3, 4, 5, 7, 8, 16}) {
    PlainPlan plan;
    plan.build(query_start, context, 2, group);
    std::set<std::tuple<int, int>> rows;
    for (const DecodeUnit& unit : plan.few.units) {
      EXPECT_LE(unit.tokens * group, kDecodeRows);
      if (unit.chunk > 0) continue;
      for (std::int32_t i = 0; i < unit.tokens; ++i)
        EXPECT_TRUE(rows.emplace(unit.kv_head, unit.first_row + i).second);
    }
    for (const PrefillUnit& unit : plan.many.units) {
      const std::int32_t tokens = std::min(kPlainRows / group, unit.tokens - unit.token);
      EXPECT_GT(unit.tokens * group, kDecodeRows);
      EXPECT_EQ(unit.last_key, unit.first_position + tokens);
      for (std::int32_t i = 0; i < tokens; ++i)
        EXPECT_TRUE(rows.emplace(unit.kv_head, unit.first_row + unit.token + i).second);
    }
    EXPECT_EQ(rows.size(), 650u) << "group " << group;
  }
}

TEST(PrefillPlan, goes_through_keys_by_sections) {
  const std::int32_t keys = 20000;
  const std::vector<std::int32_t> query_start = {0, 300, 300, 600};
  const std::vector<std::int32_t> context = {keys, keys, keys};
  PrefillPlan plan;
  plan.build(query_start, context, 4, 1);
  std::map<std::int32_t, std::set<std::pair<int, int>>> heads;
  const PrefillUnit* before = nullptr;
  for (const PrefillUnit& unit : plan.units) {
    if (before != nullptr) {
      EXPECT_LE(before->section, unit.section);
      if (before->section == unit.section) {
        EXPECT_GE(before->last_key, unit.last_key);
      }
    }
    heads[unit.section].emplace(unit.sequence, unit.kv_head);
    before = &unit;
  }
  // 65,536 keys are those of four heads at most; the sequence without rows counts for nothing.
  ASSERT_EQ(heads.size(), 3u);
  EXPECT_EQ(heads[0].size(), 4u);
  EXPECT_EQ(heads[1].size(), 3u);
  EXPECT_EQ(heads[2].size(), 1u);
}

TEST(MixedPlan, gives_decode_more_blocks_the_more_it_reads) {
  const auto blocks = [](std::int32_t decoding, std::int32_t prefilling) {
    std::vector<std::int32_t> rows = {0};
    for (std::int32_t i = 0; i < std::max(decoding, prefilling); ++i) rows.push_back(rows.back() + 1);
    DecodePlan decode;
    decode.build(std::span(rows).first(static_cast<std::size_t>(decoding) + 1),
                 std::vector<std::int32_t>(static_cast<std::size_t>(decoding), 1024), 4);
    std::vector<std::int32_t> start = {0};
    for (std::int32_t i = 0; i < prefilling; ++i) start.push_back(start.back() + 512);
    PrefillPlan prefill;
    prefill.build(start, std::vector<std::int32_t>(static_cast<std::size_t>(prefilling), 2560), 4, 2);
    return mixed_decode_blocks(decode, prefill, 128, 132);
  };
  EXPECT_GE(blocks(1, 1), 1);
  EXPECT_LT(blocks(1, 64), blocks(128, 8));
  EXPECT_LT(blocks(128, 64), blocks(128, 8));
  EXPECT_GT(blocks(1000, 1), blocks(128, 8));
  EXPECT_LE(blocks(1000, 1), 131);
}

TEST(AttentionFactors, hold_scale_and_pool_size) {
  const AttentionConfig config = {.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.3F, .pool_size = 2};
  const AttentionFactors factors = attention_factors(config, {.sigma = {1, 2}, .gain = {1, 3}}, DType::bf16);
  EXPECT_FLOAT_EQ(factors.heads[1].slope, 0.3F);
  EXPECT_FLOAT_EQ(factors.heads[1].bias, 0);
  EXPECT_FLOAT_EQ(factors.heads[1].sigma, 0.3F);
  EXPECT_FLOAT_EQ(factors.heads[1].gain, 3);
  EXPECT_FALSE(factors.form.plain);
  EXPECT_EQ(factors.form.most, 1);
  EXPECT_THROW(attention_factors({.heads = 1, .scale = -1}, {}, DType::bf16), Error);
}

TEST(AttentionFactors, leave_powers_of_two_to_the_gain) {
  AttentionConfig config = {.heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 1 / 1024.F, .pool_size = 2};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const AttentionFactors factors = attention_factors(config, {.sigma = {1}, .gain = {3}}, dtype);
    EXPECT_TRUE(factors.form.plain);
    EXPECT_EQ(factors.form.most, 1024);
    EXPECT_EQ(factors.heads[0].sigma, 0.5F);
    EXPECT_EQ(factors.heads[0].gain, 3 / 1024.F);
  }
  EXPECT_FALSE(attention_factors(config, {.sigma = {1}, .bias = {0.5F}}, DType::bf16).form.plain);
  EXPECT_FALSE(attention_factors(config, {.sigma = {1}, .slope = {2}}, DType::bf16).form.plain);
  config.scale = 1 / 65536.F;
  EXPECT_TRUE(attention_factors(config, {.sigma = {1}}, DType::bf16).form.plain);
  EXPECT_FALSE(attention_factors(config, {.sigma = {1}}, DType::f16).form.plain);
}

}  // namespace
}  // namespace asynct::cuda
