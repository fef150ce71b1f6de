#pragma once

#include "asynct/ops/attention/cuda/plain_rows.cuh"

namespace asynct::cuda {

/// A block for up to 64 query rows and all keys that they see, each warp 16 rows: scores, weights and sums
/// stay in its registers.
template <class Traits>
class PlainMany {
 public:
  static constexpr int kSharedBytes = Traits::kStagesBytes;

  __device__ PlainMany(const PlainArgs& args, std::uint32_t shared)
      : args_(args),
        shared_(shared),
        rows_(args),
        chunk_sums_(args.sums + (std::int64_t{2} * blockIdx.x * kPlainRows) * Traits::kDim + 4 * threadIdx.x),
        span_sums_(chunk_sums_ + kPlainRows * Traits::kDim) {}

  __device__ void run(int pool_size, const PrefillUnit& unit) {
    const int rows = min(unit.tokens - unit.token, kPlainRows / args_.group) * args_.group;
    rows_.begin(unit.kv_head, static_cast<int>(threadIdx.x) / 32 * 16, rows, unit.first_row + unit.token,
                unit.first_position);
    clear();
    PlainCopies<Traits>(args_, shared_)
        .for_each_stage(unit.sequence, unit.kv_head, 0, 0, 0, unit.last_key,
                        [&](int key, std::uint32_t keys, std::uint32_t values) {
                          add_stage(pool_size, key, keys, values);
                          const int end = key + Traits::kKeys;
                          if (end >= unit.last_key || end % kChunkKeys == 0)
                            end_chunk(key / kChunkKeys, end >= unit.last_key);
                        });
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) rows_.write(8 * i, sums_[i]);
  }

 private:
  static constexpr int kBlocks = Traits::kDim / 8;  // of 8 columns

  __device__ void add_stage(int pool_size, int key, std::uint32_t keys, std::uint32_t values) {
    float x[Traits::kTiles][2][4];
    std::uint32_t a[Traits::kTiles][4];
    rows_.score(keys, x);
    rows_.weigh(pool_size, key, x, a);
    rows_.add_values(values, 0, a, sums_);
  }

  /// Adds the sums of the chunks before to the chunk's; keeps the result, or leaves it with the last chunk. A
  /// thread reads what it wrote itself.
  __device__ void end_chunk(int chunk, bool last) {
    if (chunk % kSpanChunks != 0) add(chunk_sums_);
    const bool ends_span = last || (chunk + 1) % kSpanChunks == 0;
    if (ends_span && chunk >= kSpanChunks) add(span_sums_);
    if (last) return;
    float* const to = ends_span ? span_sums_ : chunk_sums_;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      *reinterpret_cast<float4*>(to + i * kStep) =
          make_float4(sums_[i][0], sums_[i][1], sums_[i][2], sums_[i][3]);
    clear();
  }

  static constexpr int kStep = 4 * Traits::kThreads;  // floats from 4 sums of a thread to its next

  __device__ void add(const float* earlier) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const float4 sum = *reinterpret_cast<const float4*>(earlier + i * kStep);
      sums_[i][0] = sum.x + sums_[i][0];
      sums_[i][1] = sum.y + sums_[i][1];
      sums_[i][2] = sum.z + sums_[i][2];
      sums_[i][3] = sum.w + sums_[i][3];
    }
  }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums_[i][j] = 0;
  }

  const PlainArgs& args_;
  const std::uint32_t shared_;
  PlainRows<Traits> rows_;
  float* const chunk_sums_;
  float* const span_sums_;
  float sums_[kBlocks][4];
};

}  // namespace asynct::cuda
