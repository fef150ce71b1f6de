#pragma once

#include "asynct/ops/attention/cuda/prefill_layout.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"

namespace asynct::cuda {

/// A warp that asks for its half of all tiles of keys and of the units' queries, or of values: 16 keys and 64
/// columns a copy and lane.
template <class Traits, bool kOfKeys>
class PrefillCopies {
 public:
  __device__ PrefillCopies(const PrefillArgs& args, const PrefillLayout<Traits>& layout, PrefillShare share,
                           int warp, int lane)
      : args_(args), layout_(layout), share_(share), warp_(warp), lane_(lane) {}

  __device__ void run() {
    const int copy = warp_ * kCopies + lane_ % kCopies;
    const int part = copy % kParts;
    const int half = copy / kParts;
    const KvView& view = kOfKeys ? args_.key : args_.value;
    const CUtensorMap& map = kOfKeys ? args_.key_map : args_.value_map;
    const int in_block = (1 << args_.block_shift) - 1;
    int n = 0;  // tiles so far
    for (int round = 0;; ++round) {
      if constexpr (kOfKeys) layout_.wait_for_free_keys(n);  // the queries' stage
      if (kOfKeys && warp_ == 0) take_unit(round);
      const PrefillUnit unit = layout_.wait_for_unit(round);
      if (unit.last_key == 0) break;
      const std::int32_t* const table =
          args_.block_table + static_cast<std::int64_t>(unit.sequence) * args_.max_blocks;
      const int column = static_cast<int>(unit.kv_head * view.head_stride) + 64 * half;
      if constexpr (kOfKeys) copy_queries(unit, n++);
#pragma unroll 1
      for (int tile = 0; tile < prefill_tiles<Traits>(unit.last_key); ++tile, ++n) {
        // Parts past the end repeat the last one: their weights are zeros, and their values are cleared.
        const int key = min(tile * Traits::kKeys + 16 * part, (unit.last_key - 1) & ~15);
        const int block = __ldg(table + (key >> args_.block_shift));
        const std::uint32_t full = kOfKeys ? layout_.key_full(n) : layout_.value_full(n);
        if constexpr (kOfKeys)
          layout_.wait_for_free_keys(n);
        else
          layout_.wait_for_free_values(n);
        if (lane_ == 0) barrier_arrive_expect(full, Traits::kTileBytes / 2);
        __syncwarp();
        if (lane_ < kCopies)
          tma_load(
              (kOfKeys ? layout_.keys(n) : layout_.values(n)) + half * Traits::kHalfBytes + 16 * part * 128,
              map, full, column + static_cast<int>((key & in_block) * view.token_stride), 0, 0, 0, block);
        __syncwarp();
      }
    }
  }

 private:
  static constexpr int kParts = Traits::kKeys / 16;
  static constexpr int kCopies = kParts * Traits::kHalves / 2;  // of a warp
  static_assert(kCopies <= 32);

  /// Units go to blocks as these come for them, the first to each by its number. The counter's answer for the
  /// next is asked for a unit ahead.
  __device__ void take_unit(int round) {
    if (lane_ == 0) {
      const int index = round == 0 ? share_.block : next_;
      PrefillUnit unit = {};
      if (index < args_.unit_count) {
        unit = args_.units[index];
        next_ = share_.blocks + static_cast<int>(atomicAdd(args_.taken, 1u));
      } else if (fetch_add_acq_rel(args_.taken + 1, 1) + 1 == static_cast<std::uint32_t>(share_.blocks)) {
        args_.taken[0] = args_.taken[1] = 0;  // for the next launch: no block asks any more
      }
      const auto* const words = reinterpret_cast<const uint4*>(&unit);
      store_shared(layout_.unit(round), words[0]);
      store_shared(layout_.unit(round) + 16, words[1]);
      barrier_arrive(layout_.unit_full(round));
    }
    __syncwarp();
  }

  /// A box is all rows of 64 columns: with one half the second warp has none.
  __device__ void copy_queries(const PrefillUnit& unit, int n) const {
    if (lane_ != 0) return;
    const std::uint32_t full = layout_.key_full(n);
    if (warp_ < Traits::kHalves) {
      barrier_arrive_expect(full, Traits::kHalfBytes);
      tma_load(layout_.keys(n) + warp_ * Traits::kHalfBytes, args_.query_map, full, 0, 0,
               unit.first_row + unit.token, warp_, unit.kv_head);
    } else {
      barrier_arrive(full);
    }
  }

  const PrefillArgs& args_;
  const PrefillLayout<Traits>& layout_;
  const PrefillShare share_;
  const int warp_, lane_;
  int next_ = 0;
};

}  // namespace asynct::cuda
