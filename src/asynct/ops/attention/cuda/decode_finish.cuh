#pragma once

#include "asynct/ops/attention/cuda/chunk_sums.cuh"
#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"

namespace asynct::cuda {

/// The warp that takes the sums of a block's units: writes a sequence of one chunk; leaves another's sum in
/// global memory and adds up what it completes, while the other warps go on.
template <class Traits>
class DecodeFinish {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeFinish(const DecodeArgs& args, const DecodeLayout<Traits>& layout, int lane)
      : args_(args), layout_(layout), lane_(lane) {}

  __device__ void run(const DecodeUnits& units) {
    wait_for_launcher();
    int count = 0;  // units so far
    units.for_each([&](const DecodeUnit& unit, int, int, int) {
      const int chunks = chunks_of(unit.context);
      layout_.wait_for_sums(count);
      for_each_piece(unit, [&](int row, int column) {
        const float4 sum = load_shared<float4>(layout_.sums(count) + 4 * (row * Traits::kDim + column));
        if (chunks == 1)
          write(unit, row, column, sum);
        else
          *slot(unit.first_slot + unit.chunk, row, column) = sum;
      });
      barrier_arrive(layout_.sums_free(count));
      ++count;
      if (chunks > 1) add_up(unit, chunks);
    });
  }

 private:
  /// Calls visit(row, column) for each 4 columns of this lane.
  template <class Visit>
  __device__ void for_each_piece(const DecodeUnit& unit, const Visit& visit) const {
    constexpr int kLanesARow = Traits::kDim / 4;
    for (int row = lane_ / kLanesARow; row < unit.tokens * args_.group; row += 32 / kLanesARow)
      visit(row, 4 * (lane_ % kLanesARow));
  }

  __device__ void add_up(const DecodeUnit& unit, int chunks) const {
    add_up_chunks(
        args_, unit, chunks, [&](std::uint32_t* counter, int all) { return last_to_arrive(counter, all); },
        [&](int first, int step, int count, bool keep) { add_slots(unit, first, step, count, keep); });
  }

  /// Counts a sum; true for the warp that completes `all`, which then sees what the others wrote.
  __device__ bool last_to_arrive(std::uint32_t* counter, int all) const {
    __syncwarp();
    std::uint32_t arrived = 0;
    if (lane_ == 0) {
      arrived = fetch_add_acq_rel(counter, 1) + 1;
      if (arrived == static_cast<std::uint32_t>(all)) *counter = 0;  // for the next launch
    }
    // The warp's other lanes wrote before lane 0 released, and read after it acquired: __syncwarp orders
    // both.
    __syncwarp();
    return __shfl_sync(~0u, arrived, 0) == static_cast<std::uint32_t>(all);
  }

  /// Adds `count` sums, `step` slots apart, in order; into the first, or rounded into the output.
  __device__ void add_slots(const DecodeUnit& unit, int first, int step, int count, bool keep) const {
    constexpr int kAtOnce = 16;  // loads in flight
    for_each_piece(unit, [&](int row, int column) {
      float4 total = __ldcg(slot(first, row, column));
      for (int i = 1; i < count; i += kAtOnce) {
        float4 next[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (i + j < count) next[j] = __ldcg(slot(first + (i + j) * step, row, column));
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (i + j >= count) break;
          total.x += next[j].x;
          total.y += next[j].y;
          total.z += next[j].z;
          total.w += next[j].w;
        }
      }
      if (keep)
        *slot(first, row, column) = total;
      else
        write(unit, row, column, total);
    });
  }

  __device__ float4* slot(int index, int row, int column) const {
    return reinterpret_cast<float4*>(partial_sum<Traits::kDim>(args_.partial, index, row, column));
  }

  __device__ void write(const DecodeUnit& unit, int row, int column, const float4& total) const {
    const int token = row / args_.group;
    const int head = unit.kv_head * args_.group + row - token * args_.group;
    const float gain = args_.factors[head].gain;
    auto* const to = static_cast<Element*>(args_.out) + (unit.first_row + token) * args_.out_stride +
                     head * Traits::kDim + column;
    *reinterpret_cast<uint2*>(to) = make_uint2(pack<Element>(gain * total.x, gain * total.y),
                                               pack<Element>(gain * total.z, gain * total.w));
  }

  const DecodeArgs& args_;
  const DecodeLayout<Traits>& layout_;
  const int lane_;
};

}  // namespace asynct::cuda
