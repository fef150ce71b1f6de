#pragma once

#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"

namespace asynct::cuda {

/// A warp that brings keys, or a part of the values, of all units of a block into their ring. Keys come by
/// the copy engine; it alone, with values too, reaches no more than 4.05 TB/s
/// (docs/notes/hopper-attention.md).
template <class Traits>
class DecodeCopies {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeCopies(const DecodeArgs& args, const DecodeLayout<Traits>& layout, int lane)
      : args_(args), layout_(layout), lane_(lane), in_block_((1 << args.block_shift) - 1) {}

  /// Every kKeyCopyWarps-th stage.
  __device__ void run_keys(const DecodeUnits& units, int warp) {
    for_each_stage(
        units, [&](const DecodeUnit& unit, int key, int last_key, int n, int block, int halo_block) {
          if (n % Traits::kKeyCopyWarps != warp) return;
          const bool halo = Traits::kPool > 1 && key > 0;
          const std::uint32_t full = layout_.key_full(n);
          layout_.wait_for_free_keys(n);
          if (lane_ == 0)
            barrier_arrive_expect(full,
                                  bytes_of(last_key - key) + (halo ? Traits::kHalves * kHaloKeys * 128 : 0));
          copy_tiles(layout_.keys(n), args_.key_map, full, unit, key, last_key, block);
          if (halo && lane_ >= 4 && lane_ < 4 + Traits::kHalves) {
            const int half = lane_ - 4;
            tma_load(layout_.keys(n) + Traits::kStageTiles * Traits::kTileBytes + half * Traits::kHalfBytes +
                         (kTileKeys - kHaloKeys) * 128,
                     args_.halo_map, full, 0, (key - kHaloKeys) & in_block_, half, unit.kv_head, halo_block);
          }
        });
  }

  /// Every kValueCopyWarps-th stage. kNeeded: only rows that some query row gives weight, once the weights
  /// are there.
  template <bool kNeeded>
  __device__ void run_values(const DecodeUnits& units, int warp) {
    constexpr int kLanesARow = Traits::kDim / 8;
    constexpr int kRows = 32 / kLanesARow;  // that one instruction copies
    const int piece = lane_ % kLanesARow;
    const int row = lane_ / kLanesARow;
    const std::uint32_t lane_to = piece / 8 * Traits::kHalfBytes + row * 128 + ((piece & 7) << 4);
    // The more blocks share the memory, the longer all keys wait behind the first values, which are of no use
    // before them: for each so many blocks one more stage waits for its weights, and so for its keys.
    constexpr int kBlocksALead = 24;
    const int lead = min(Traits::kValueStages, units.stride / kBlocksALead);
    for_each_stage(units, [&](const DecodeUnit& unit, int key, int last_key, int n, int block, int) {
      if (n % Traits::kValueCopyWarps != warp) return;
      const auto* const base = static_cast<const Element*>(args_.value.data) +
                               unit.kv_head * args_.value.head_stride + row * args_.value.token_stride +
                               8 * piece;
      layout_.wait_for_free_values(n);
      std::uint32_t needed[] = {0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF};
      if constexpr (kNeeded) {
        layout_.wait_for_weights(n);
        const uint4 by_tile = load_shared<uint4>(layout_.needed(n));
        needed[0] = by_tile.x;
        needed[1] = by_tile.y;
        needed[2] = by_tile.z;
        needed[3] = by_tile.w;
      } else if (n < lead) {
        layout_.wait_for_weights(n);
      }
      const std::uint32_t to = layout_.values(n) + lane_to;
#pragma unroll
      for (int part = 0; part < kStageKeys / 8; ++part) {
        const int part_key = key + 8 * part;
        const std::int64_t part_block = __shfl_sync(~0u, block, part, 8);
        if (part_key >= last_key) break;
        const Element* from =
            base + part_block * args_.value.block_stride + (part_key & in_block_) * args_.value.token_stride;
        const std::uint32_t wanted = needed[part / 2] >> (8 * (part & 1) + row);
#pragma unroll
        for (int i = 0; i < 8; i += kRows) {
          const std::uint32_t at =
              (to ^ (((i + row) & 7) << 4)) + part / 2 * Traits::kTileBytes + (8 * (part & 1) + i) * 128;
          if (!kNeeded || (wanted >> i & 1) != 0) copy_async_16(at, from);
          from += kRows * args_.value.token_stride;
        }
      }
      if constexpr (kNeeded) barrier_arrive(layout_.weight_free(n));
      copy_async_arrive(layout_.value_full(n));
    });
  }

 private:
  /// Calls visit(unit, first key of the stage, last key of the unit, stage, block, block of the key before):
  /// lane 8 i + j gets the block of keys 8 j of the stage.
  template <class Visit>
  __device__ void for_each_stage(const DecodeUnits& units, const Visit& visit) {
    constexpr int kWindow = 256;  // keys whose blocks the lanes hold, 8 keys a lane
    bool waited = false;
    units.for_each([&](const DecodeUnit& unit, int first_key, int last_key, int n) {
      const std::int32_t* const table =
          args_.block_table + static_cast<std::int64_t>(unit.sequence) * args_.max_blocks;
      const auto block_at = [&](int key) {
        return key < last_key ? __ldg(table + (key >> args_.block_shift)) : 0;
      };
      int blocks = 0;
      int next = block_at(first_key + 8 * lane_);
      int before = first_key > 0 ? __ldg(table + ((first_key - 1) >> args_.block_shift)) : 0;
      if (!waited) {
        waited = true;
        wait_for_launcher();  // the plan is older than the kernel before this one, queries and keys are not
      }
      for (int key = first_key; key < last_key; key += kStageKeys, ++n) {
        const int first_lane = (key - first_key) % kWindow / 8;
        if (first_lane == 0) {
          blocks = next;
          next = block_at(key + kWindow + 8 * lane_);
        }
        visit(unit, key, last_key, n, __shfl_sync(~0u, blocks, first_lane + lane_ % 8), before);
        before = __shfl_sync(~0u, blocks, first_lane + 7);
      }
    });
  }

  /// Bytes that copy_tiles() brings when `keys` are left.
  __device__ std::uint32_t bytes_of(int keys) const {
    const int grain = args_.block_shift >= 4 ? kTileKeys : 8;
    return divide_up(min(keys, kStageKeys), grain) * grain * 128 * Traits::kHalves;
  }

  /// A lane a tile, or 8 keys of it.
  __device__ void copy_tiles(std::uint32_t to, const CUtensorMap& map, std::uint32_t full,
                             const DecodeUnit& unit, int key, int last_key, int block) const {
    __syncwarp();  // the bytes are announced
    const int part = lane_ % 8;
    const int part_key = key + 8 * part;
    if (lane_ >= 8 || part_key >= last_key) return;
    const std::uint32_t tile = to + part / 2 * Traits::kTileBytes;
    if (args_.block_shift >= 4) {
      if (part % 2 == 0) tma_load(tile, map, full, 0, part_key & in_block_, 0, unit.kv_head, block);
    } else {
      for (int half = 0; half < Traits::kHalves; ++half)
        tma_load(tile + half * Traits::kHalfBytes + part % 2 * 1024, map, full, 0, 0, half, unit.kv_head,
                 block);
    }
  }

  const DecodeArgs& args_;
  const DecodeLayout<Traits>& layout_;
  const int lane_;
  const int in_block_;
};

}  // namespace asynct::cuda
