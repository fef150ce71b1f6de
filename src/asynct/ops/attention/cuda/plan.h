#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "asynct/ops/attention/cuda/args.h"

namespace asynct::cuda {

/// Decode's work of one step, made on the host once and shared by all layers. Reuses its memory.
struct DecodePlan {
  std::vector<DecodeUnit> units;  // longest first
  std::int32_t slots = 0;         // partial sums that a launch leaves

  /// Sequences with `query_start[i + 1] - query_start[i]` rows on `context_length[i]` keys; those without
  /// rows, or with more than `most_tokens`, are skipped. Rows times heads a KV head are at most kDecodeRows.
  void build(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_length,
             std::int32_t kv_heads, std::int32_t most_tokens = std::numeric_limits<std::int32_t>::max());
};

/// Prefill's work of one step, in sections of kSectionKeys so that keys and values are read from memory once,
/// each longest first.
struct PrefillPlan {
  std::vector<PrefillUnit> units;

  /// As DecodePlan's, with `group` query heads a KV head, a power of two up to 16.
  void build(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_length,
             std::int32_t kv_heads, std::int32_t group);

  /// The same in units of `unit_tokens` tokens, of the sequences with more than `skipped_tokens`.
  void build_units(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_length,
                   std::int32_t kv_heads, std::int32_t unit_tokens, std::int32_t skipped_tokens);
};

/// The plain path's work of one step (plain.h): as decode what fits into kDecodeRows rows a KV head, the rest
/// as prefill in units of kPlainRows rows.
struct PlainPlan {
  DecodePlan few;
  PrefillPlan many;

  /// `group` query heads a KV head, 1 to kDecodeRows.
  void build(std::span<const std::int32_t> query_start, std::span<const std::int32_t> context_length,
             std::int32_t kv_heads, std::int32_t group);
};

/// Blocks of a launch of both that go to decode, so that both parts end at about the same time: 1 to
/// multiprocessors - 1. Both plans have units.
std::int32_t mixed_decode_blocks(const DecodePlan& decode, const PrefillPlan& prefill, std::int32_t head_dim,
                                 std::int32_t multiprocessors);

}  // namespace asynct::cuda
