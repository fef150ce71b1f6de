#pragma once

#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"

namespace asynct::cuda {

/// A warp that multiplies weights and values of all stages, for its columns.
template <class Traits>
class DecodeSums {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeSums(const DecodeArgs& args, const DecodeLayout<Traits>& layout, int warp, int lane)
      : args_(args), layout_(layout), warp_(warp), lane_(lane), g_(lane >> 2), t_(lane & 3) {
    const std::uint32_t row = decode_operand_row(lane);
#pragma unroll
    for (int i = 0; i < Traits::kOutBlocks; ++i) {
      const int block = Traits::kOutBlocks * warp + i;
      operand_[i] = (row ^ (block % 4 << 5)) + block / 4 * Traits::kHalfBytes;
    }
  }

  __device__ void run(const DecodeUnits& units) {
    wait_for_launcher();
    units.for_each([&](const DecodeUnit& unit, int first_key, int last_key, int n) {
      float out[Traits::kRowBlocks][Traits::kOutBlocks][4] = {};
      for (int key = first_key; key < last_key; key += kStageKeys, ++n) {
        layout_.wait_for_weights(n);
        layout_.wait_for_values(n);
        add_stage(n, out);
        __syncwarp();
        if (lane_ == 0) {
          barrier_arrive(layout_.weight_free(n));
          barrier_arrive(layout_.value_free(n));
        }
      }
      finish(unit, out);
    });
  }

 private:
  using Sums = float[Traits::kRowBlocks][Traits::kOutBlocks][4];

  /// out += values^T weights^T. Rows g and g + 8 of block i are value columns 16 i + g and 16 i + 8 + g.
  __device__ void add_stage(int n, Sums& out) const {
    const uint4 needed = load_shared(layout_.needed(n));
    const std::uint32_t by_tile[] = {needed.x, needed.y, needed.z, needed.w};
#pragma unroll
    for (int tile = 0; tile < Traits::kStageTiles; ++tile) {
      if (by_tile[tile] == 0) continue;
      const std::uint32_t keys = by_tile[tile] >> (4 * t_);
      uint2 weights[Traits::kRowBlocks];
#pragma unroll
      for (int block = 0; block < Traits::kRowBlocks; ++block)
        weights[block] = load_shared_8(layout_.weights(n) + tile * Traits::kWeightTileBytes + 256 * block +
                                       8 * lane_);
      // What lies where no weight is may be another row's, or no number.
      const std::uint32_t low = pair_mask(keys);
      const std::uint32_t high = pair_mask(keys >> 2);
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

  /// Writes the sum of a sequence that is one chunk; leaves another's and adds up what it completes.
  __device__ void finish(const DecodeUnit& unit, const Sums& out) const {
    const int chunks = chunks_of(unit.context);
    float* const mine = slot(unit.first_slot + unit.chunk);
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * block + 2 * t_ + e;
        if (row >= unit.tokens * args_.group) continue;
#pragma unroll
        for (int i = 0; i < Traits::kOutBlocks; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int column = 16 * (Traits::kOutBlocks * warp_ + i) + 8 * half + g_;
            if (chunks == 1)
              write_one(unit, row, column, out[block][i][2 * half + e]);
            else
              mine[row * Traits::kDim + column] = out[block][i][2 * half + e];
          }
      }
    if (chunks > 1) add_up(unit, chunks);
  }

  __device__ void add_up(const DecodeUnit& unit, int chunks) const {
    const int span = unit.chunk / kSpanChunks;
    const int in_span = min(kSpanChunks, chunks - span * kSpanChunks);
    const int spans = divide_up(chunks, kSpanChunks);
    const int first = unit.first_slot + span * kSpanChunks;
    if (!last_to_arrive(unit.first_slot + span, in_span)) return;
    add_slots(unit, first, 1, in_span, spans > 1);
    if (spans == 1 || !last_to_arrive(args_.slots + unit.first_slot, spans)) return;
    add_slots(unit, unit.first_slot, kSpanChunks, spans, false);
  }

  /// Counts this warp's sum; true for the one that completes `all`, which then sees what the others wrote.
  __device__ bool last_to_arrive(int counter, int all) const {
    std::uint32_t* const arrivals = args_.arrived + static_cast<std::int64_t>(counter) * kSumWarps + warp_;
    __syncwarp();
    std::uint32_t arrived = 0;
    if (lane_ == 0) {
      arrived = fetch_add_acq_rel(arrivals, 1) + 1;
      if (arrived == static_cast<std::uint32_t>(all)) *arrivals = 0;  // for the next launch
    }
    // The warp's other lanes wrote before lane 0 released, and read after it acquired: __syncwarp orders
    // both.
    __syncwarp();
    return __shfl_sync(~0u, arrived, 0) == static_cast<std::uint32_t>(all);
  }

  /// Adds `count` sums, `step` slots apart, in order; into the first, or rounded into the output.
  __device__ void add_slots(const DecodeUnit& unit, int first, int step, int count, bool keep) const {
    constexpr int kLanesARow = 4 * Traits::kOutBlocks;
    constexpr int kAtOnce = 16;  // loads in flight
    const int column = 16 * Traits::kOutBlocks * warp_ + 4 * (lane_ % kLanesARow);
    const std::int64_t stride = static_cast<std::int64_t>(step) * kDecodeRows * Traits::kDim;
    for (int row = lane_ / kLanesARow; row < unit.tokens * args_.group; row += 32 / kLanesARow) {
      float* const from = slot(first) + row * Traits::kDim + column;
      float4 total = {};
      for (int i = 0; i < count; i += kAtOnce) {
        float4 next[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (i + j < count) next[j] = __ldcg(reinterpret_cast<const float4*>(from + (i + j) * stride));
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (i + j >= count) break;
          const bool begins = i + j == 0;
          total.x = begins ? next[j].x : total.x + next[j].x;
          total.y = begins ? next[j].y : total.y + next[j].y;
          total.z = begins ? next[j].z : total.z + next[j].z;
          total.w = begins ? next[j].w : total.w + next[j].w;
        }
      }
      if (keep)
        *reinterpret_cast<float4*>(from) = total;
      else
        write(unit, row, column, total);
    }
  }

  __device__ float* slot(int index) const {
    return args_.partial + static_cast<std::int64_t>(index) * kDecodeRows * Traits::kDim;
  }

  /// Where an output element lies, and its head's gain.
  __device__ Element* element(const DecodeUnit& unit, int row, int column, float& gain) const {
    const int token = row / args_.group;
    const int head = unit.kv_head * args_.group + row - token * args_.group;
    gain = args_.factors[head].gain;
    return static_cast<Element*>(args_.out) + (unit.first_row + token) * args_.out_stride +
           head * Traits::kDim + column;
  }

  __device__ void write_one(const DecodeUnit& unit, int row, int column, float sum) const {
    float gain;
    Element* const to = element(unit, row, column, gain);
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(pack<Element>(gain * sum, 0.f));
  }

  __device__ void write(const DecodeUnit& unit, int row, int column, const float4& total) const {
    float gain;
    Element* const to = element(unit, row, column, gain);
    *reinterpret_cast<uint2*>(to) = make_uint2(pack<Element>(gain * total.x, gain * total.y),
                                               pack<Element>(gain * total.z, gain * total.w));
  }

  const DecodeArgs& args_;
  const DecodeLayout<Traits>& layout_;
  const int warp_, lane_, g_, t_;  // g: a value column; t: 2 query rows, 4 consecutive keys
  std::uint32_t operand_[Traits::kOutBlocks];
};

}  // namespace asynct::cuda
