#include "asynct/ops/attention/cuda/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/policy.h"

namespace asynct::cuda {
namespace {

TEST(Policy, chunks_and_spans_cover_the_context) {
  EXPECT_EQ(chunks_of(1), 1);
  EXPECT_EQ(chunks_of(kChunkKeys), 1);
  EXPECT_EQ(chunks_of(kChunkKeys + 1), 2);
  EXPECT_EQ(spans_of(kChunkKeys * kSpanChunks), 1);
  EXPECT_EQ(spans_of(kChunkKeys * kSpanChunks + 1), 2);
}

TEST(DecodePlan, gives_each_chunk_to_one_unit_within_its_span) {
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
    plan.build(query_start, context, heads, pick(1, 2000));
    std::map<std::tuple<int, int, int>, int> slot_of;
    std::set<int> slots;
    std::int32_t before = kChunkKeys * kSpanChunks;
    for (const DecodeUnit& unit : plan.units) {
      const auto s = static_cast<std::size_t>(unit.sequence);
      EXPECT_EQ(unit.context, context[s]);
      EXPECT_EQ(unit.first_row, query_start[s]);
      EXPECT_EQ(unit.tokens, query_start[s + 1] - query_start[s]);
      EXPECT_GT(unit.tokens, 0);
      EXPECT_EQ(unit.chunk / kSpanChunks, (unit.chunk + unit.chunks - 1) / kSpanChunks);
      if (unit.chunk % kSpanChunks == 0) {
        EXPECT_EQ(unit.leading, unit.chunks);
      }
      const std::int32_t keys =
          std::min(unit.context, (unit.chunk + unit.chunks) * kChunkKeys) - unit.chunk * kChunkKeys;
      EXPECT_LE(keys, before);
      before = keys;
      for (std::int32_t chunk = unit.chunk; chunk < unit.chunk + unit.chunks; ++chunk) {
        EXPECT_TRUE(
            slot_of.emplace(std::tuple(unit.sequence, unit.kv_head, chunk), unit.first_slot + chunk).second);
        EXPECT_TRUE(slots.insert(unit.first_slot + chunk).second);
      }
    }
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < context.size(); ++i)
      if (query_start[i + 1] > query_start[i])
        wanted += static_cast<std::size_t>(heads * chunks_of(context[i]));
    EXPECT_EQ(slot_of.size(), wanted);
    EXPECT_EQ(plan.slots, static_cast<std::int32_t>(wanted));
    EXPECT_TRUE(slots.empty() || *slots.rbegin() < plan.slots);
  }
}

TEST(DecodePlan, cuts_where_warps_would_be_idle) {
  const std::vector<std::int32_t> one_row = {0, 1};
  DecodePlan plan;
  plan.build(one_row, std::vector<std::int32_t>{65536}, 4, 1056);
  EXPECT_EQ(plan.units.size(), 1024u);
  plan.build(one_row, std::vector<std::int32_t>{65536}, 4, 64);
  EXPECT_EQ(plan.units.size(), 64u);
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

TEST(HeadFactors, hold_scale_and_pool_size) {
  const AttentionConfig config = {.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.3F, .pool_size = 2};
  EXPECT_EQ(query_scale(config, DType::bf16), 1);
  const auto factors = head_factors(config, {.sigma = {1, 2}, .gain = {1, 3}}, 1);
  EXPECT_FLOAT_EQ(factors[1].slope, 0.3F);
  EXPECT_FLOAT_EQ(factors[1].bias, 0);
  EXPECT_FLOAT_EQ(factors[1].sigma, 0.3F);
  EXPECT_FLOAT_EQ(factors[1].gain, 3);
  EXPECT_FALSE(all_plain(factors));
  EXPECT_THROW(query_scale({.heads = 1, .scale = -1}, DType::bf16), Error);
}

TEST(HeadFactors, leave_powers_of_two_to_the_queries) {
  const AttentionConfig config = {
      .heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 0.0625F, .pool_size = 2};
  EXPECT_EQ(query_scale(config, DType::f16), 1);
  EXPECT_EQ(query_scale(config, DType::bf16), 0.0625F);
  EXPECT_TRUE(all_plain(head_factors(config, {.sigma = {1}}, 0.0625F)));
  EXPECT_FALSE(all_plain(head_factors(config, {.sigma = {1}, .bias = {0.5F}}, 0.0625F)));
}

}  // namespace
}  // namespace asynct::cuda
