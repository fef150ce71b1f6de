#pragma once

#include "asynct/ops/attention/cuda/prefill_layout.cuh"
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
    for (int round = 0; share_.unit(round) < args_.unit_count; ++round) {
      const PrefillUnit unit = args_.units[share_.unit(round)];
      const std::int32_t* const table =
          args_.block_table + static_cast<std::int64_t>(unit.sequence) * args_.max_blocks;
      const int column = static_cast<int>(unit.kv_head * view.head_stride) + 64 * half;
      if constexpr (kOfKeys) copy_queries(unit, round, n++);
#pragma unroll 1
      for (int tile = 0; tile < prefill_tiles<Traits>(unit.last_key); ++tile, ++n) {
        // Parts past the end repeat the last one: their weights are zeros, what lies there must be finite.
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

  /// A box is all rows of 64 columns: with one half the second warp has none.
  __device__ void copy_queries(const PrefillUnit& unit, int round, int n) const {
    layout_.wait_for_free_keys(n);
    if (lane_ != 0) return;
    if (warp_ == 0) {
      const auto* const words = reinterpret_cast<const uint4*>(&unit);
      store_shared(layout_.unit(round), words[0]);
      store_shared(layout_.unit(round) + 16, words[1]);
    }
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
};

}  // namespace asynct::cuda
