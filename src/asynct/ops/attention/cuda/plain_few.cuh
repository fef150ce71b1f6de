#pragma once

#include "asynct/ops/attention/cuda/chunk_sums.cuh"
#include "asynct/ops/attention/cuda/plain_rows.cuh"
#include "asynct/ops/cuda/grid.cuh"

namespace asynct::cuda {

/// A block for up to 16 query rows and a chunk of keys: each warp the scores of its 16 keys of a stage, then
/// its columns of the sum over all of them, in the order of keys.
template <class Traits>
class PlainFew {
 public:
  static constexpr int kHistoryBytes = 2 * Traits::kTiles * kDecodeRows * 16;
  static constexpr int kSharedBytes = Traits::kStagesBytes + kHistoryBytes + Traits::kTiles * 32 * 16;

  __device__ PlainFew(const PlainArgs& args, std::uint32_t shared, const DecodeUnit& unit)
      : args_(args),
        unit_(unit),
        shared_(shared),
        history_(shared + Traits::kStagesBytes),
        weights_(history_ + kHistoryBytes),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rows_(args) {}

  __device__ void run(int pool_size) {
    rows_.begin(unit_.kv_head, 0, unit_.tokens * args_.group, unit_.first_row, unit_.context - unit_.tokens);
    const int first = unit_.chunk * kChunkKeys;
    const int last = min(unit_.context, first + kChunkKeys);
    // A chunk's first keys are pooled with the ones before, which come as a stage without values.
    const bool halo = first > 0 && pool_size > 1;
    int count = 0;
    PlainCopies<Traits>(args_, shared_)
        .for_each_stage(unit_.sequence, unit_.kv_head, halo ? first - Traits::kKeys : first,
                        halo ? first - (pool_size - 1) : first, first, last,
                        [&](int key, std::uint32_t keys, std::uint32_t values) {
                          add_stage(pool_size, key, count++, key < first, keys, values);
                        });
    leave();
  }

 private:
  static constexpr int kColumns = Traits::kDim / Traits::kWarps;  // of a warp

  __device__ void add_stage(int pool_size, int key, int count, bool only_scores, std::uint32_t keys,
                            std::uint32_t values) {
    const bool scores = warp_ < Traits::kTiles;
    float x[1][2][4];
    if (scores) {
      rows_.score(keys + warp_ * Traits::kTileBytes, x);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if ((lane_ & 3) == 3) store_shared(history_of(count, warp_, half), rows_.pooled_values(x[0], half));
    }
    __syncthreads();
    if (only_scores) return;
    if (scores) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (warp_ > 0)
          rows_.set_history(half, load_shared<float4>(history_of(count, warp_ - 1, half)));
        else if (count > 0)
          rows_.set_history(half, load_shared<float4>(history_of(count - 1, Traits::kTiles - 1, half)));
      }
      std::uint32_t a[1][4];
      rows_.weigh(pool_size, key + warp_ * kTileKeys, x, a);
      store_shared(weights_ + 512 * warp_ + 16 * lane_, make_uint4(a[0][0], a[0][1], a[0][2], a[0][3]));
    }
    __syncthreads();
    std::uint32_t a[Traits::kTiles][4];
#pragma unroll
    for (int tile = 0; tile < Traits::kTiles; ++tile) {
      const uint4 packed = load_shared<uint4>(weights_ + 512 * tile + 16 * lane_);
      a[tile][0] = packed.x, a[tile][1] = packed.y, a[tile][2] = packed.z, a[tile][3] = packed.w;
    }
    rows_.add_values(values, kColumns / 16 * warp_, a, sums_);
  }

  /// Of a tile's last four keys and this lane's row. A stage's last tile is read in the next stage, too: two
  /// stages.
  __device__ std::uint32_t history_of(int count, int tile, int half) const {
    return history_ + (((count & 1) * Traits::kTiles + tile) * kDecodeRows + (lane_ >> 2) + 8 * half) * 16;
  }

  /// Writes the only chunk's sum, or leaves it for the block that completes a span.
  __device__ void leave() const {
    const int chunks = chunks_of(unit_.context);
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      const int column = kColumns * warp_ + 8 * i;
      if (chunks == 1) {
        rows_.write(column, sums_[i]);
        continue;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(
            slot(unit_.first_slot + unit_.chunk, (lane_ >> 2) + 8 * half, column + 2 * (lane_ & 3))) =
            make_float2(sums_[i][2 * half], sums_[i][2 * half + 1]);
    }
    if (chunks == 1) return;
    add_up_chunks(
        args_, unit_, chunks, [&](std::uint32_t* counter, int all) { return last_to_arrive(counter, all); },
        [&](int first, int step, int count, bool keep) { add_slots(first, step, count, keep); });
  }

  /// Counts a sum; true in the block that completes `all`, which then sees what the others wrote.
  __device__ bool last_to_arrive(std::uint32_t* counter, int all) const {
    bool last = false;
    __syncthreads();  // the block's sums are written before one thread releases them, and read after it
                      // acquired
    if (threadIdx.x == 0) {
      last = fetch_add_acq_rel(counter, 1) + 1 == static_cast<std::uint32_t>(all);
      if (last) *counter = 0;  // for the next launch
    }
    return __syncthreads_or(last);
  }

  /// Adds `count` sums, `step` slots apart, in order; into the first, or rounded into the output.
  __device__ void add_slots(int first, int step, int count, bool keep) const {
    constexpr int kPieces = Traits::kDim / 4;  // of a row
    constexpr int kAtOnce = 8;                 // loads in flight
    for (int i = static_cast<int>(threadIdx.x); i < unit_.tokens * args_.group * kPieces;
         i += Traits::kThreads) {
      const int row = i / kPieces;
      const int column = i % kPieces * 4;
      float4 total = __ldcg(reinterpret_cast<float4*>(slot(first, row, column)));
      for (int j = 1; j < count; j += kAtOnce) {
        float4 next[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          if (j + k < count)
            next[k] = __ldcg(reinterpret_cast<float4*>(slot(first + (j + k) * step, row, column)));
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if (j + k >= count) break;
          total.x += next[k].x;
          total.y += next[k].y;
          total.z += next[k].z;
          total.w += next[k].w;
        }
      }
      if (keep)
        *reinterpret_cast<float4*>(slot(first, row, column)) = total;
      else
        write(row, column, total);
    }
  }

  __device__ float* slot(int index, int row, int column) const {
    return partial_sum<Traits::kDim>(args_.partial, index, row, column);
  }

  __device__ void write(int row, int column, const float4& total) const {
    using Element = typename Traits::Element;
    const int token = row / args_.group;
    const int head = unit_.kv_head * args_.group + row - token * args_.group;
    const float gain = args_.factors[head].gain;
    auto* const to = reinterpret_cast<std::uint32_t*>(static_cast<Element*>(args_.out) +
                                                      (unit_.first_row + token) * args_.out_stride +
                                                      head * Traits::kDim + column);
    to[0] = pack<Element>(gain * total.x, gain * total.y);
    to[1] = pack<Element>(gain * total.z, gain * total.w);
  }

  const PlainArgs& args_;
  const DecodeUnit unit_;
  const std::uint32_t shared_, history_, weights_;
  const int warp_, lane_;
  PlainRows<Traits> rows_;
  float sums_[kColumns / 8][4] = {};
};

}  // namespace asynct::cuda
