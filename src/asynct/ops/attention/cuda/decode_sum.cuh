#pragma once

#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/cuda/mma.cuh"

namespace asynct::cuda {

/// A warp that multiplies weights and values of all stages, for its columns.
template <class Traits>
class DecodeSums {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeSums(const DecodeLayout<Traits>& layout, int warp, int lane)
      : layout_(layout), warp_(warp), lane_(lane), g_(lane >> 2), t_(lane & 3) {
    const std::uint32_t row = decode_operand_row(lane);
#pragma unroll
    for (int i = 0; i < Traits::kOutBlocks; ++i) {
      const int block = Traits::kOutBlocks * warp + i;
      operand_[i] = (row ^ (block % 4 << 5)) + block / 4 * Traits::kHalfBytes;
    }
  }

  __device__ void run(const DecodeUnits& units) {
    int count = 0;  // units so far
    units.for_each([&](const DecodeUnit&, int first_key, int last_key, int n) {
      float out[Traits::kRowBlocks][Traits::kOutBlocks][4] = {};
      for (int key = first_key; key < last_key; key += kStageKeys, ++n) {
        layout_.wait_for_weights(n);
        layout_.wait_for_values(n);
        add_stage(n, out);
        barrier_arrive(layout_.weight_free(n));
        barrier_arrive(layout_.value_free(n));
      }
      leave(count++, out);
    });
  }

 private:
  using Sums = float[Traits::kRowBlocks][Traits::kOutBlocks][4];

  /// out += values^T weights^T. Rows g and g + 8 of block i are value columns 16 i + g and 16 i + 8 + g.
  __device__ void add_stage(int n, Sums& out) const {
    const uint4 needed = load_shared<uint4>(layout_.needed(n));
    const std::uint32_t by_tile[] = {needed.x, needed.y, needed.z, needed.w};
#pragma unroll
    for (int tile = 0; tile < Traits::kStageTiles; ++tile) {
      if (by_tile[tile] == 0) continue;
      const std::uint32_t keys = by_tile[tile] >> (4 * t_);
      const int first = decode_swaps(lane_) ? 2 : 0;
      uint2 weights[Traits::kRowBlocks];
#pragma unroll
      for (int block = 0; block < Traits::kRowBlocks; ++block)
        weights[block] = load_shared<uint2>(layout_.weights(n) + tile * Traits::kWeightTileBytes +
                                            256 * block + 8 * lane_);
      // What lies where no weight is may be another row's, or no number.
      const std::uint32_t low = pair_mask(keys >> first);
      const std::uint32_t high = pair_mask(keys >> (2 - first));
#pragma unroll
      for (int i = 0; i < Traits::kOutBlocks; ++i) {
        std::uint32_t a[4];
        load_matrices_transposed(a, layout_.values(n) + tile * Traits::kTileBytes + operand_[i]);
        if (by_tile[tile] != 0xFFFF) {
          a[0] &= low;
          a[1] &= low;
          a[2] &= high;
          a[3] &= high;
        }
#pragma unroll
        for (int block = 0; block < Traits::kRowBlocks; ++block)
          multiply_add<Element>(out[block][i], a, weights[block].x, weights[block].y);
      }
    }
  }

  static __device__ std::uint32_t pair_mask(std::uint32_t keys) {
    return (keys & 1 ? 0xFFFFu : 0u) | (keys & 2 ? 0xFFFF0000u : 0u);
  }

  __device__ void leave(int count, const Sums& out) const {
    layout_.wait_for_free_sums(count);
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block)
#pragma unroll
      for (int i = 0; i < Traits::kOutBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int row = 8 * block + 2 * t_ + (j & 1);
          const int column = 16 * (Traits::kOutBlocks * warp_ + i) + 8 * (j >> 1) + g_;
          store_shared(layout_.sums(count) + 4 * (row * Traits::kDim + column), out[block][i][j]);
        }
    barrier_arrive(layout_.sums_full(count));
  }

  const DecodeLayout<Traits>& layout_;
  const int warp_, lane_, g_, t_;  // g: a value column; t: 2 query rows, 4 consecutive keys
  std::uint32_t operand_[Traits::kOutBlocks];
};

}  // namespace asynct::cuda
