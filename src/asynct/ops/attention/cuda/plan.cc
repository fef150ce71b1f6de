#include "asynct/ops/attention/cuda/plan.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "asynct/ops/attention/cuda/plain_policy.h"

namespace asynct::cuda {
namespace {

std::int32_t keys_of(const DecodeUnit& unit) {
  return std::min(unit.context - unit.chunk * kChunkKeys, kChunkKeys);
}

}  // namespace

void DecodePlan::build(std::span<const std::int32_t> query_start,
                       std::span<const std::int32_t> context_length, std::int32_t kv_heads,
                       std::int32_t most_tokens) {
  assert(query_start.size() == context_length.size() + 1);
  units.clear();
  slots = 0;
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t tokens = query_start[i + 1] - query_start[i];
    if (tokens == 0 || tokens > most_tokens) continue;
    const std::int32_t chunks = chunks_of(context_length[i]);
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int32_t head = 0; head < kv_heads; ++head)
        units.push_back({.sequence = static_cast<std::int32_t>(i),
                         .kv_head = head,
                         .chunk = chunk,
                         .first_slot = slots + head * chunks,
                         .first_row = query_start[i],
                         .tokens = tokens,
                         .context = context_length[i]});
    slots += chunks * kv_heads;
  }
  std::sort(units.begin(), units.end(), [](const DecodeUnit& a, const DecodeUnit& b) {
    return std::tuple(-keys_of(a), a.sequence, a.chunk, a.kv_head) <
           std::tuple(-keys_of(b), b.sequence, b.chunk, b.kv_head);
  });
}

void PrefillPlan::build(std::span<const std::int32_t> query_start,
                        std::span<const std::int32_t> context_length, std::int32_t kv_heads,
                        std::int32_t group) {
  build_units(query_start, context_length, kv_heads, kPrefillRows / group, 0);
}

void PrefillPlan::build_units(std::span<const std::int32_t> query_start,
                              std::span<const std::int32_t> context_length, std::int32_t kv_heads,
                              std::int32_t unit_tokens, std::int32_t skipped_tokens) {
  assert(query_start.size() == context_length.size() + 1);
  units.clear();
  std::int64_t keys_before = 0;  // of the sequences and heads so far
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t tokens = query_start[i + 1] - query_start[i];
    if (tokens <= skipped_tokens) continue;
    for (std::int32_t token = 0; token < tokens; token += unit_tokens) {
      const std::int32_t position = context_length[i] - tokens + token;
      for (std::int32_t head = 0; head < kv_heads; ++head)
        units.push_back({.sequence = static_cast<std::int32_t>(i),
                         .kv_head = head,
                         .first_row = query_start[i],
                         .tokens = tokens,
                         .token = token,
                         .first_position = position,
                         .last_key = std::min(context_length[i], position + unit_tokens),
                         .section = static_cast<std::int32_t>(
                             (keys_before + std::int64_t{head} * context_length[i]) / kSectionKeys)});
    }
    if (tokens > 0) keys_before += std::int64_t{kv_heads} * context_length[i];
  }
  std::sort(units.begin(), units.end(), [](const PrefillUnit& a, const PrefillUnit& b) {
    return std::tuple(a.section, -a.last_key, a.sequence, a.token, a.kv_head) <
           std::tuple(b.section, -b.last_key, b.sequence, b.token, b.kv_head);
  });
}

void PlainPlan::build(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_length,
                      std::int32_t kv_heads, std::int32_t group) {
  assert(group >= 1 && group <= kDecodeRows);
  const std::int32_t few_tokens = kDecodeRows / group;
  few.build(query_start, context_length, kv_heads, few_tokens);
  many.build_units(query_start, context_length, kv_heads, kPlainRows / group, few_tokens);
}

std::int32_t mixed_decode_blocks(const DecodePlan& decode, const PrefillPlan& prefill, std::int32_t head_dim,
                                 std::int32_t multiprocessors) {
  // Measured on an H200, D 128 (docs/notes/hopper-attention.md): a block alone streams this much, all of them
  // together no more than that, and a tile of 128 rows and keys takes so long.
  constexpr double kBytesAMicrosecond = 45e3;
  constexpr double kMostBytesAMicrosecond = 4.3e6;
  const double tile_microseconds = head_dim == 64 ? 1.0 : 1.5;
  double bytes = 0;
  for (const DecodeUnit& unit : decode.units) bytes += 4.0 * head_dim * keys_of(unit);
  double tiles = 0;
  for (const PrefillUnit& unit : prefill.units) tiles += divide_up(unit.last_key, 128);
  std::int32_t last_key = 0;
  for (const PrefillUnit& unit : prefill.units) last_key = std::max(last_key, unit.last_key);
  const double longest = divide_up(last_key, 128);
  std::int32_t best = 1;
  double least = 0;
  for (std::int32_t blocks = 1; blocks < multiprocessors; ++blocks) {
    const double streaming = bytes / std::min(blocks * kBytesAMicrosecond, kMostBytesAMicrosecond);
    const std::int32_t others = multiprocessors - blocks;
    const double rounds = divide_up(static_cast<std::int32_t>(prefill.units.size()), others);
    // Units go out in rounds of equal length at worst, and evenly at best.
    const double multiplying =
        tile_microseconds *
        std::max(tiles / others, std::min(rounds * longest, tiles / others + longest / 2));
    const double both = std::max(streaming, multiplying);
    if (blocks > 1 && both >= least) continue;
    least = both;
    best = blocks;
  }
  return best;
}

}  // namespace asynct::cuda
