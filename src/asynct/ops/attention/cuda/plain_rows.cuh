#pragma once

#include "asynct/ops/attention/cuda/plain_copy.cuh"
#include "asynct/ops/attention/cuda/weights.cuh"
#include "asynct/ops/cuda/mma.cuh"

namespace asynct::cuda {

/// 16 query rows of a warp in registers: lane 4 g + t has rows g and g + 8. A row is a query head of the
/// group and a token, heads side by side.
template <class Traits>
class PlainRows {
 public:
  using Element = typename Traits::Element;
  static constexpr int kMostPool = 5;

  __device__ PlainRows(const PlainArgs& args)
      : args_(args),
        lane_(static_cast<int>(threadIdx.x) % 32),
        key_row_(plain_operand_row<Traits, false>(lane_)),
        value_row_(plain_operand_row<Traits, true>(lane_)),
        most_(pack<Element>(args.form.most, args.form.most)) {}

  /// Rows `row` to row + 15 of a unit of `rows` rows, whose first token is `step_row` of the step.
  __device__ void begin(int kv_head, int row, int rows, int step_row, int first_position) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int mine = row + (lane_ >> 2) + 8 * half;
      const bool used = mine < rows;
      const int token = used ? mine / args_.group : 0;
      const int head = kv_head * args_.group + (used ? mine - token * args_.group : 0);
      limit_[half] = used ? first_position + token : -1;
      factors_[half] = args_.factors[head];
      out_[half] = (step_row + token) * args_.out_stride + head * Traits::kDim;
      const auto* const query = static_cast<const Element*>(args_.query) +
                                (step_row + token) * args_.query_stride + head * Traits::kDim +
                                2 * (lane_ & 3);
#pragma unroll
      for (int i = 0; i < Traits::kDim / 16; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          query_[i][2 * j + half] =
              used ? __ldg(reinterpret_cast<const std::uint32_t*>(query + 16 * i + 8 * j)) : 0;
      }
#pragma unroll
      for (int i = 0; i < kMostPool - 1; ++i) history_[half][i] = 0;
    }
  }

  /// <q, k> of kTiles tiles of 16 keys; scores[tile][j][2 half + e] is of key 4 t + 2 j + e.
  template <int kTiles>
  __device__ void score(std::uint32_t keys, float (&scores)[kTiles][2][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[tile][i / 4][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < Traits::kDim / 16; ++i)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        std::uint32_t b[4];
        load_matrices(b, plain_columns(keys + key_row_, i) + tile * Traits::kTileBytes);
        multiply_add<Element>(scores[tile][0], query_[i], b[0], b[1]);
        multiply_add<Element>(scores[tile][1], query_[i], b[2], b[3]);
      }
  }

  /// What row half's keys 4 t .. 4 t + 3 add to a pool.
  __device__ float4 pooled_values(const float (&scores)[2][4], int half) const {
    const float floor = args_.form.pool_floor;
    return make_float4(fmaxf(scores[0][2 * half], floor), fmaxf(scores[0][2 * half + 1], floor),
                       fmaxf(scores[1][2 * half], floor), fmaxf(scores[1][2 * half + 1], floor));
  }
  /// Pooling goes on after a tile whose last four keys had those values.
  __device__ void set_history(int half, const float4& last) {
    history_[half][0] = last.w;
    history_[half][1] = last.z;
    history_[half][2] = last.y;
    history_[half][3] = last.x;
  }

  /// Weights of the tiles from `key` on as left operands of the product with values: the layouts agree.
  template <int kTiles>
  __device__ void weigh(int pool_size, int key, const float (&scores)[kTiles][2][4],
                        std::uint32_t (&weights)[kTiles][4]) {
    switch (pool_size) {
      case 1:
        return weigh_pool<1>(key, scores, weights);
      case 2:
        return weigh_pool<2>(key, scores, weights);
      case 3:
        return weigh_pool<3>(key, scores, weights);
      default:
        return weigh_pool<5>(key, scores, weights);
    }
  }

  /// sums += weights x values of kTiles tiles, for kCount times 8 columns from 16 `block` on.
  template <int kTiles, int kCount>
  __device__ void add_values(std::uint32_t values, int block, const std::uint32_t (&weights)[kTiles][4],
                             float (&sums)[kCount][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i) {
        std::uint32_t b[4];
        load_matrices_transposed(b,
                                 plain_columns(values + value_row_, block + i) + tile * Traits::kTileBytes);
        multiply_add<Element>(sums[2 * i], weights[tile], b[0], b[1]);
        multiply_add<Element>(sums[2 * i + 1], weights[tile], b[2], b[3]);
      }
  }

  /// Columns `column` to column + 7 of both rows.
  __device__ void write(int column, const float (&sum)[4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (limit_[half] < 0) continue;
      const float gain = factors_[half].gain;
      *reinterpret_cast<std::uint32_t*>(static_cast<Element*>(args_.out) + out_[half] + column +
                                        2 * (lane_ & 3)) =
          pack<Element>(gain * sum[2 * half], gain * sum[2 * half + 1]);
    }
  }

 private:
  template <int kPool, int kTiles>
  __device__ void weigh_pool(int key, const float (&scores)[kTiles][2][4],
                             std::uint32_t (&weights)[kTiles][4]) {
    if (args_.form.plain)
      weigh_tiles<kPool, true>(key, scores, weights);
    else
      weigh_tiles<kPool, false>(key, scores, weights);
  }

  template <int kPool, bool kPlain, int kTiles>
  __device__ void weigh_tiles(int key, const float (&scores)[kTiles][2][4],
                              std::uint32_t (&weights)[kTiles][4]) {
    PoolHistory<kPool> history[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kPool - 1; ++i) history[half].last[i] = history_[half][i];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 values = pooled_values(scores[tile], half);
        const float r[4] = {values.x, values.y, values.z, values.w};
        float sum[4], a[4];
        int lane = lane_;
        asm volatile(""
                     : "+r"(lane));  // else the compiler branches on who is a quad's first, around shuffles
        pool<kPool>(r, history[half], lane, sum);
        const int left = limit_[half] - (key + tile * kTileKeys + 4 * (lane_ & 3));
#pragma unroll
        for (int i = 0; i < 4; ++i)
          a[i] = i <= left ? weight<kPlain>(factors_[half], scores[tile][i >> 1][2 * half + (i & 1)], sum[i])
                           : 0.f;
        weights[tile][half] = pack_weights<Element>(a[0], a[1], most_);
        weights[tile][2 + half] = pack_weights<Element>(a[2], a[3], most_);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kPool - 1; ++i) history_[half][i] = history[half].last[i];
  }

  const PlainArgs& args_;
  const int lane_;
  const std::uint32_t key_row_, value_row_;  // in a tile
  const std::uint32_t most_;

  // Of the unit.
  int limit_[2];  // last visible key, -1 of rows that are none
  HeadFactors factors_[2];
  std::int64_t out_[2];  // where a row begins
  float history_[2][kMostPool - 1];
  std::uint32_t query_[Traits::kDim / 16][4];
};

}  // namespace asynct::cuda
