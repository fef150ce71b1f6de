#pragma once

#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/attention/cuda/weights.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"

namespace asynct::cuda {

/// A warp that turns the scores of every kScoreWarps-th stage of keys into weights.
template <class Traits>
class DecodeScores {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeScores(const DecodeArgs& args, const DecodeLayout<Traits>& layout, int warp, int lane)
      : args_(args),
        layout_(layout),
        warp_(warp),
        lane_(lane),
        g_(lane >> 2),
        t_(lane & 3),
        swaps_(decode_swaps(lane)),
        operand_row_(decode_operand_row(lane)),
        most_(pack<Element>(args.form.most, args.form.most)) {}

  __device__ void run(const DecodeUnits& units) {
    wait_for_launcher();
    int mine = warp_;  // the next stage of this warp
    std::uint32_t seen = 0;
    units.for_each([&](const DecodeUnit& unit, int first_key, int last_key, int n) {
      const int end = n + divide_up(last_key - first_key, kStageKeys);
      if (mine >= end) return;
      start(unit);
      for (; mine < end; mine += Traits::kScoreWarps) {
        const int key = first_key + (mine - n) * kStageKeys;
        weigh_stage(mine, key);
        seen += min(kStageKeys, last_key - key);
      }
    });
    if (args_.value_count != nullptr && lane_ == 0 && seen > 0)
      add_relaxed(args_.value_count, std::uint64_t{seen} << 32 | needed_keys_);
  }

 private:
  /// Queries and factors of a unit into registers.
  __device__ void start(const DecodeUnit& unit) {
    const int rows = unit.tokens * args_.group;
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block) {
      const int row = g_ + 8 * block;
      const bool used = row < rows;
      const int token = used ? row / args_.group : 0;
      const int head = unit.kv_head * args_.group + (used ? row - token * args_.group : 0);
      limit_[block] = used ? unit.context - unit.tokens + token : -1;
      factors_[block] = args_.factors[head];
      const auto* const query = static_cast<const Element*>(args_.query) +
                                (unit.first_row + token) * args_.query_stride + head * Traits::kDim + 2 * t_;
#pragma unroll
      for (int i = 0; i < Traits::kDim / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          query_[block][i][half] =
              used ? __ldg(reinterpret_cast<const std::uint32_t*>(query + 16 * i + 8 * half)) : 0;
        }
      }
    }
  }

  __device__ void weigh_stage(int n, int first_key) {
    layout_.wait_for_keys(n);
    const std::uint32_t keys = layout_.keys(n) + operand_row_;
    float x[Traits::kStageTiles][2][4];
    score(keys, x);
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block) history_[block] = {};
    if (Traits::kPool > 1 && first_key > 0) {
      // Only the tile's last keys are there; what else lies in it gives scores that nobody reads.
      float before[1][2][4], sum[4];
      score(keys + Traits::kStageTiles * Traits::kTileBytes, before);
#pragma unroll
      for (int block = 0; block < Traits::kRowBlocks; ++block) pool_scores(block, before[0], sum);
    }
    layout_.wait_for_free_weights(n);
#pragma unroll
    for (int tile = 0; tile < Traits::kStageTiles; ++tile) {
      // Scores past the end are of what lies there, but no row sees them.
      const int key = first_key + tile * kTileKeys;
      const std::uint32_t to = layout_.weights(n) + tile * Traits::kWeightTileBytes;
      const std::uint32_t needed =
          args_.form.plain ? weigh<true>(key, x[tile], to) : weigh<false>(key, x[tile], to);
      needed_keys_ += __popc(needed);
      if (lane_ == 0) store_shared(layout_.needed(n) + 4 * tile, needed);
    }
    barrier_arrive(layout_.key_free(n));
    barrier_arrive(layout_.weight_full(n));
  }

  /// <q, k> of some tiles at once, so that products wait for each other less: x[tile][block][i] belongs to
  /// row g + 8 block and key 4 t + i.
  template <int kTiles>
  __device__ void score(std::uint32_t keys, float (&x)[kTiles][2][4]) const {
    float sums[kTiles][2][4] = {};
#pragma unroll
    for (int i = 0; i < Traits::kDim / 16; ++i) {
      std::uint32_t a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        a[2 * half] = query_[0][i][half];
        a[2 * half + 1] = Traits::kRowBlocks > 1 ? query_[Traits::kRowBlocks - 1][i][half] : 0;
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        std::uint32_t b[4];
        load_matrices(b, (keys ^ (i % 4 << 5)) + tile * Traits::kTileBytes + i / 4 * Traits::kHalfBytes);
        multiply_add<Element>(sums[tile][0], a, b[0], b[1]);
        multiply_add<Element>(sums[tile][1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int block = 0; block < 2; ++block)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[tile][block][i] = swaps_ ? sums[tile][1 - (i >> 1)][2 * block + (i & 1)]
                                     : sums[tile][i >> 1][2 * block + (i & 1)];
  }

  __device__ void pool_scores(int block, const float (&x)[2][4], float (&sum)[4]) {
    float r[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) r[i] = fmaxf(x[block][i], args_.form.pool_floor);
    pool<Traits::kPool>(r, history_[block], lane_, sum);
  }

  /// Weights of the tile that begins at `first_key` as operands of the product with values; returns the keys
  /// that some row gives weight.
  template <bool kPlain>
  __device__ std::uint32_t weigh(int first_key, const float (&x)[2][4], std::uint32_t to) {
    const int key = first_key + 4 * t_;
    std::uint32_t needed = 0;
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block) {
      float sum[4], a[4];
      pool_scores(block, x, sum);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = key + i <= limit_[block] ? weight<kPlain>(factors_[block], x[block][i], sum[i]) : 0.f;
      uint2 packed;
      packed.x = pack_weights<Element>(a[0], a[1], most_);
      packed.y = pack_weights<Element>(a[2], a[3], most_);
      store_shared(to + 256 * block + 8 * lane_, swaps_ ? make_uint2(packed.y, packed.x) : packed);
      needed |= (packed.x & 0xffffu ? 1u : 0u) | (packed.x >> 16 ? 2u : 0u) | (packed.y & 0xffffu ? 4u : 0u) |
                (packed.y >> 16 ? 8u : 0u);
    }
    return __reduce_or_sync(~0u, needed << (4 * t_));
  }

  const DecodeArgs& args_;
  const DecodeLayout<Traits>& layout_;
  const int warp_, lane_, g_, t_;  // g: a query row; t: 4 consecutive keys
  const bool swaps_;
  const std::uint32_t operand_row_;
  const std::uint32_t most_;
  std::uint32_t needed_keys_ = 0;  // of all units so far

  // Of the current unit, by block of 8 query rows.
  int limit_[Traits::kRowBlocks];  // last visible key of row g
  HeadFactors factors_[Traits::kRowBlocks];
  PoolHistory<Traits::kPool> history_[Traits::kRowBlocks];
  std::uint32_t query_[Traits::kRowBlocks][Traits::kDim / 16][2];
};

}  // namespace asynct::cuda
