#pragma once

#include <cstdint>

// Sizes that the plan on the host and the kernels share. All of them are part of the reduction order: a row's
// result depends on its own keys and on these numbers only.
namespace asynct::cuda {

/// Keys are summed in chunks, aligned to absolute position; chunk sums are added in order within a span of
/// chunks, span sums in order. Two levels, so that the last block to arrive never adds more than a few dozen
/// sums: a million keys are 64 spans of 16 chunks.
inline constexpr std::int32_t kChunkKeys = 1024;
inline constexpr std::int32_t kSpanChunks = 16;

/// Keys of one step of a product A V (the k of a matrix instruction). A lane of a quad owns kTileKeys / 4
/// consecutive keys, so that pooling takes registers and pool_size - 1 shuffles
/// (docs/notes/hopper-attention.md).
inline constexpr std::int32_t kTileKeys = 16;

/// The row of keys, and of values, where the plain path and prefill have a key: of each 16, key 4 t + 2 j + e
/// in row 8 j + 2 t + e, so that lane t of a quad gets 4 consecutive ones.
constexpr std::int32_t tile_row_of(std::int32_t key) {
  return (key & ~15) + 8 * (key >> 1 & 1) + 2 * (key >> 2 & 3) + (key & 1);
}

/// Keys of one stage of decode's pipeline.
inline constexpr std::int32_t kStageKeys = 64;

/// Keys that are copied for their scores alone, which a stage's first keys are pooled with: at least
/// pool_size - 1.
inline constexpr std::int32_t kHaloKeys = 4;

/// Query rows of one unit of decode: the query heads of a KV group times the sequence's rows in this step.
inline constexpr std::int32_t kDecodeRows = 16;

/// And of prefill: two warpgroups' 64.
inline constexpr std::int32_t kPrefillRows = 128;

/// Keys, of all sequences and KV heads, that prefill goes through at a time: with D 128 their keys and values
/// are 34 MB, a good half of the L2.
inline constexpr std::int64_t kSectionKeys = 65536;

/// Warps of a block of decode that multiply weights and values, each its own columns.
inline constexpr std::int32_t kSumWarps = 4;

constexpr std::int32_t divide_up(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }
constexpr std::int32_t chunks_of(std::int32_t context) { return divide_up(context, kChunkKeys); }
constexpr std::int32_t spans_of(std::int32_t context) { return divide_up(chunks_of(context), kSpanChunks); }

static_assert(kChunkKeys % kStageKeys == 0 && kStageKeys % kTileKeys == 0);

}  // namespace asynct::cuda
