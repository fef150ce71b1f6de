#pragma once

#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/ops/attention/cuda/plain_policy.h"
#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"

namespace asynct::cuda {

template <class ElementType, int kHeadDim>
struct PlainTraits {
  using Element = ElementType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kKeys =
      kDim == 256 ? 32 : 64;  // of a stage: two of them fit in 99 KB, all that some have
  static constexpr int kTiles = kKeys / kTileKeys;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kPartBytes = kKeys * kRowBytes;  // keys of a stage, or values
  static constexpr int kStageBytes = 2 * kPartBytes;
  static constexpr int kStagesBytes = 2 * kStageBytes;
  static_assert(kChunkKeys % kKeys == 0, "a stage belongs to one chunk");
};

/// Where lane i finds its row of matrix i / 8 of an operand, from a tile's first byte on: 16 keys and the
/// first 16 columns. Piece p of 16 bytes of row r lies where p ^ (r % 8) would. kTransposed: rows are the
/// sum's depth.
template <class Traits, bool kTransposed>
__device__ inline std::uint32_t plain_operand_row(int lane) {
  const int row = kTransposed ? lane & 15 : (lane & 7) + (lane >> 4) * 8;
  const int piece = kTransposed ? lane >> 4 : lane >> 3 & 1;
  return row * Traits::kRowBytes + ((piece ^ (row & 7)) << 4);
}

/// The same of columns 16 i on, given where the first are. Tiles begin at multiples of 128 bytes.
__device__ inline std::uint32_t plain_columns(std::uint32_t first, int i) {
  return (first ^ (i % 4 << 5)) + i / 4 * 128;
}

/// Brings a unit's stages of keys and values to shared memory, all warps together: each warp some keys, lanes
/// side by side along a row. Where rows lie is looked up a stage ahead, one lane a row.
template <class Traits>
class PlainCopies {
 public:
  __device__ PlainCopies(const PlainArgs& args, std::uint32_t stages)
      : args_(args),
        stages_(stages),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Calls visit(key, keys, values) for the stages from `key` to `last_key`, with the places of keys and
  /// values in shared memory. Keys before `first_key`, values before `first_value` and what lies past the end
  /// are zeros there: what is not read cannot be wrong.
  template <class Visit>
  __device__ void for_each_stage(int sequence, int kv_head, int key, int first_key, int first_value,
                                 int last_key, const Visit& visit) {
    const bool is_value = lane_ >= 16;
    const KvView& view = is_value ? args_.value : args_.key;
    first_ = is_value ? first_value : first_key;
    last_ = last_key;
    token_bytes_ = 2 * view.token_stride;
    block_bytes_ = 2 * view.block_stride;
    base_ = static_cast<const char*>(view.data) + 2 * kv_head * view.head_stride;
    if (args_.block_table == nullptr)
      base_ += args_.first_key[sequence] * token_bytes_;
    else
      table_ = args_.block_table + static_cast<std::int64_t>(sequence) * args_.max_blocks;

    look_up(key);
    copy(0);
    look_up(key + Traits::kKeys);
#pragma unroll 1
    for (int stage = 0; key < last_key; stage ^= 1, key += Traits::kKeys) {
      copy_async_wait<0>();
      __syncthreads();  // all copies of this stage have come, the other one is left
      if (key + Traits::kKeys < last_key) copy(stage ^ 1);
      look_up(key + 2 * Traits::kKeys);
      const std::uint32_t keys = stages_ + stage * Traits::kStageBytes;
      visit(key, keys, keys + Traits::kPartBytes);
    }
    __syncthreads();
  }

 private:
  static constexpr int kWarpKeys = Traits::kKeys / Traits::kWarps;
  static constexpr int kPieces = Traits::kDim / 8;  // of 16 bytes a row
  static constexpr int kRowsAtOnce = 32 / kPieces;

  /// Lane i < 16 knows where the warp's key i lies, lane 16 + i its value.
  __device__ void look_up(int stage_key) {
    const int key = stage_key + warp_ * kWarpKeys + lane_ % kWarpKeys;
    row_ = nullptr;
    if (key < first_ || key >= last_) return;
    if (args_.block_table == nullptr) {
      row_ = base_ + key * token_bytes_;
      return;
    }
    const auto size = static_cast<unsigned>(args_.block_size);
    const unsigned block = static_cast<unsigned>(key) / size;
    row_ = base_ + __ldg(table_ + block) * block_bytes_ +
           (static_cast<unsigned>(key) - block * size) * token_bytes_;
  }

  __device__ void copy(int stage) const {
    const int piece = lane_ % kPieces;
    const std::uint32_t keys = stages_ + stage * Traits::kStageBytes;
#pragma unroll
    for (int i = 0; i < kWarpKeys; i += kRowsAtOnce) {
      const int mine = i + lane_ / kPieces;
      const int row = tile_row_of(warp_ * kWarpKeys + mine);
      const std::uint32_t to = keys + row * Traits::kRowBytes + ((piece ^ (row & 7)) << 4);
      copy_piece(to, row_of(mine), piece);
      copy_piece(to + Traits::kPartBytes, row_of(16 + mine), piece);
    }
    copy_async_commit();
  }

  __device__ const char* row_of(int lane) const {
    return reinterpret_cast<const char*>(__shfl_sync(~0u, reinterpret_cast<unsigned long long>(row_), lane));
  }

  static __device__ void copy_piece(std::uint32_t to, const char* row, int piece) {
    if (row != nullptr)
      copy_async_16(to, row + 16 * piece);
    else
      store_shared(to, make_uint4(0, 0, 0, 0));
  }

  const PlainArgs& args_;
  const std::uint32_t stages_;
  const int warp_, lane_;

  // Of the unit, in lanes below 16 of the keys and in the others of the values.
  int first_, last_;
  std::int64_t token_bytes_, block_bytes_;
  const char* base_;
  const std::int32_t* table_ = nullptr;
  const char* row_;
};

}  // namespace asynct::cuda
