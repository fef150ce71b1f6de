#pragma once

#include "asynct/ops/attention/cuda/online_softmax.cuh"
#include "asynct/ops/attention/cuda/prefill_layout.cuh"
#include "asynct/ops/attention/cuda/weights.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"

namespace asynct::cuda {

/// A warpgroup: 64 query rows of each unit through all tiles.
template <class Traits>
class PrefillRows {
 public:
  using Element = typename Traits::Element;

  __device__ PrefillRows(const PrefillArgs& args, const PrefillLayout<Traits>& layout, PrefillShare share,
                         int group, int thread)
      : args_(args),
        layout_(layout),
        share_(share),
        keys_(wgmma::operand(layout.keys(0), 1024, 16)),
        values_(wgmma::operand(layout.values(0), 1024, Traits::kHalfBytes)),
        sums_(layout.sums(group) + 16 * thread),
        group_(group),
        thread_(thread),
        lane_(thread % 32),
        row_(64 * group + 16 * (thread / 32) + (thread % 32) / 4),
        most_(pack<Element>(args.form.most, args.form.most)) {}

  __device__ void run() {
    if (group_ == 1) end_turn();
    for (int round = 0; begin(layout_.wait_for_unit(round)); ++round) {
      layout_.wait_for_keys(key_count_);
      if (has_rows_) {
        take_queries();
        multiply();
        write(layout_.unit_of(round));
      } else {
        leave_unit();
      }
    }
    if (group_ == 0) wait_for_turn();  // what the other one left
  }

 private:
  /// False at the end of all units.
  __device__ bool begin(const PrefillUnit& unit) {
    if (unit.last_key == 0) return false;
    last_key_ = unit.last_key;
    first_position_ = unit.first_position;
    has_rows_ = unit.token + (64 * group_ >> args_.group_shift) < unit.tokens;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + 8 * half;
      const int token = row >> args_.group_shift;
      const int head = (unit.kv_head << args_.group_shift) + row - (token << args_.group_shift);
      // Rows past the end see what the last one sees; they are not written.
      limit_[half] = min(unit.first_position + token, unit.last_key - 1);
      factors_[half] = args_.factors[head];
      history_[half] = {};
      softmax_[half] = {};
    }
    return true;
  }

  static constexpr int kBarrier = 1;  // and 2: of a warpgroup
  static constexpr int kTurn = 3;     // and 4: of both, before a warpgroup's products
  __device__ void wait_for_turn() const { barrier_sync(kTurn + group_, 256); }
  __device__ void end_turn() const { barrier_arrive(kTurn + 1 - group_, 256); }
  using Scores = float[Traits::kKeys / 2];

  /// The queries as left operands. Their stage is left with the first tile's: until a product has read the
  /// registers nothing says that they are loaded, an arrival does not wait for it.
  __device__ void take_queries() {
    const int row = row_ - lane_ / 4 + (lane_ & 15);
    const std::uint32_t at = layout_.keys(key_count_) + row * 128;
#pragma unroll
    for (int i = 0; i < Traits::kDim / 16; ++i)
      load_matrices(query_[i],
                    at + i / 4 * Traits::kHalfBytes + (((2 * (i % 4) + (lane_ >> 4)) ^ (row & 7)) << 4));
    fence_async_shared();  // before the copy engine's next write there
    __syncwarp();
    ++key_count_;
  }

  /// Scores of a tile are asked for before the values of the one before: weights are made while the matrix
  /// units add.
  __device__ void multiply() {
    const int tiles = prefill_tiles<Traits>(last_key_);
    // Tiles of which every row sees every key.
    const int whole = (first_position_ + 1) / Traits::kKeys;
    for (int tile = 0; tile < tiles; ++tile) {
      Scores scores;
      layout_.wait_for_keys(key_count_);
      wait_for_turn();
      score(scores);
      if (tile > 0) {
        layout_.wait_for_values(value_count_);
        add_values(!begins_sum(tile - 1));
        end_turn();
        wgmma::wait<1>();
      } else {
        end_turn();
        wgmma::wait<0>();
      }
      wgmma::touch(scores);
      if (lane_ == 0) {
        if (tile == 0) barrier_arrive(layout_.key_free(key_count_ - 1));
        barrier_arrive(layout_.key_free(key_count_));
      }
      ++key_count_;
      if constexpr (Traits::kSoftmax) prepare_softmax(tile, scores);
      if (tile >= whole && !Traits::kSoftmax)
        weigh<true>(tile, scores);
      else
        weigh<false>(tile, scores);
    }
    layout_.wait_for_values(value_count_);
    if (tiles * Traits::kKeys > last_key_) clear_values(tiles - 1);
    add_values(!begins_sum(tiles - 1));
    wgmma::wait<0>();
    wgmma::touch(sum_);
    end_tile(tiles - 1, true);
    if constexpr (Traits::kSoftmax) {
      for (int half = 0; half < 2; ++half) factors_[half].gain /= sum_of_quad(softmax_[half].total);
    }
  }

  __device__ static bool begins_sum(int tile) {
    return Traits::kSoftmax ? tile == 0 : tile % Traits::kChunkTiles == 0;
  }

  /// A unit that ends before this warpgroup's rows: the other one has the matrix units for itself.
  __device__ void leave_unit() {
    if (lane_ == 0) barrier_arrive(layout_.key_free(key_count_));
    ++key_count_;
    for (int tile = prefill_tiles<Traits>(last_key_); tile > 0; --tile) {
      wait_for_turn();
      end_turn();
      layout_.wait_for_keys(key_count_);
      layout_.wait_for_values(value_count_);
      __syncwarp();
      if (lane_ == 0) {
        barrier_arrive(layout_.key_free(key_count_));
        barrier_arrive(layout_.value_free(value_count_));
      }
      ++key_count_;
      ++value_count_;
    }
  }

  __device__ void score(Scores& scores) const {
    const std::uint64_t keys = wgmma::advance(keys_, key_count_ % Traits::kKeyStages * Traits::kTileBytes);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < Traits::kDim / 16; ++i)
      wgmma::RegisterProduct<Element, Traits::kKeys, 0>::multiply(
          query_[i], wgmma::advance(keys, i / 4 * Traits::kHalfBytes + i % 4 * 32), scores, i > 0);
    wgmma::commit();
  }

  __device__ void add_values(bool accumulate) {
    const std::uint64_t values =
        wgmma::advance(values_, value_count_ % Traits::kValueStages * Traits::kTileBytes);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < Traits::kKeys / 16; ++i)
      wgmma::RegisterProduct<Element, Traits::kDim, 1>::multiply(
          weights_[i], wgmma::advance(values, i * 16 * 128), sum_, accumulate || i > 0);
    wgmma::commit();
  }

  /// What lies past the last key may be no number, and zero times that is none either.
  __device__ void clear_values(int tile) const {
    constexpr int kPieces = 8 * Traits::kHalves;
    const int valid = last_key_ - tile * Traits::kKeys;
    const std::uint32_t values = layout_.values(value_count_);
    for (int i = thread_; i < (Traits::kKeys - valid) * kPieces; i += 128) {
      const int key = valid + i / kPieces;
      const int row = tile_row_of(key);
      const int piece = i % kPieces;
      store_shared(values + piece / 8 * Traits::kHalfBytes + row * 128 + piece % 8 * 16,
                   make_uint4(0, 0, 0, 0));
    }
    fence_async_shared();
    barrier_sync(kBarrier + group_, 128);
  }

  /// Scores to weights, 16 keys at a time, as the left operand of the product with values: the layouts agree.
  /// The first kWaitStep steps wait in place while the values of the tile before are added, whose weights lie
  /// there.
  template <bool kMasked>
  __device__ void weigh(int tile, Scores& scores) {
    constexpr int kSteps = Traits::kKeys / 16;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (Traits::kSoftmax)
        soften_step(i, scores);
      else
        weigh_step<kMasked>(tile * Traits::kKeys + 16 * i, i, scores);
      if (i < Traits::kWaitStep) continue;
      if (i == Traits::kWaitStep) {
        wgmma::wait<0>();
        wgmma::touch(sum_);
        if constexpr (Traits::kSoftmax) rescale_sum(tile);
        if (tile > 0) end_tile(tile - 1, false);
#pragma unroll
        for (int j = 0; j < i; ++j) round_step(j, scores);
      }
      round_step(i, scores);
    }
  }

  template <bool kMasked>
  __device__ void weigh_step(int first_key, int i, Scores& scores) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto at = [&](int k) -> float& { return scores[8 * i + 4 * (k >> 1) + 2 * half + (k & 1)]; };
      float r[4], sum[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) r[k] = fmaxf(at(k), args_.form.pool_floor);
      pool<Traits::kPool>(r, history_[half], lane_, sum);
      const int left = limit_[half] - (first_key + 4 * (lane_ & 3));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float a = Traits::kPlain || args_.form.plain ? weight<true>(factors_[half], at(k), sum[k])
                                                           : weight<false>(factors_[half], at(k), sum[k]);
        at(k) = !kMasked || k <= left ? a : 0.f;
      }
    }
  }

  __device__ void round_step(int i, const Scores& scores) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = scores[8 * i + 2 * j];
      const float high = scores[8 * i + 2 * j + 1];
      weights_[i][j] = Traits::kSoftmax ? pack<Element>(low, high) : pack_weights<Element>(low, high, most_);
    }
  }

  // The twin's scores. Element e of 4 belongs to this thread's row e / 2.

  /// Masks scores and takes the largest of each row.
  __device__ void prepare_softmax(int tile, Scores& scores) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int left = limit_[half] - (tile * Traits::kKeys + 4 * (lane_ & 3));
      float largest = -INFINITY;
#pragma unroll
      for (int i = 0; i < Traits::kKeys / 16; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& x = scores[8 * i + 4 * (k >> 1) + 2 * half + (k & 1)];
          x = 16 * i + k <= left ? x : -INFINITY;
          largest = fmaxf(largest, x);
        }
      softmax_[half].see(largest_of_quad(largest), factors_[half].slope);
    }
  }

  __device__ void soften_step(int i, Scores& scores) {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      scores[8 * i + j] = softmax_[j >> 1 & 1].weight(scores[8 * i + j], factors_[j >> 1 & 1].slope);
  }

  /// The sum of the tiles before, where a row's largest score has grown.
  __device__ void rescale_sum(int tile) {
    if (tile == 0 || !__any_sync(~0u, softmax_[0].factor != 1 || softmax_[1].factor != 1)) return;
#pragma unroll
    for (int i = 0; i < Traits::kSums; ++i) sum_[i] *= softmax_[i >> 1 & 1].factor;
  }

  /// After a tile's values are added.
  __device__ void end_tile(int tile, bool last) {
    if (lane_ == 0) barrier_arrive(layout_.value_free(value_count_));
    ++value_count_;
    if (Traits::kSoftmax) return;
    if (last || (tile + 1) % Traits::kChunkTiles == 0) end_chunk(tile / Traits::kChunkTiles, last);
  }

  /// Adds the sums of the chunks before to the chunk's; keeps the result, or leaves it with the last chunk.
  __device__ void end_chunk(int chunk, bool last) {
    if (last && chunk == 0) return;
    if (chunk % kSpanChunks != 0) add_shared();
    if (!last && (chunk + 1) % kSpanChunks != 0) return keep_shared();
    float* const spans =
        args_.span_sums + (share_.block * Traits::kRows + 64 * group_) * Traits::kDim + 4 * thread_;
    if (chunk >= kSpanChunks) {
#pragma unroll
      for (int i = 0; i < Traits::kSums / 4; ++i) add(i, *reinterpret_cast<const float4*>(spans + i * 512));
    }
    if (last) return;
#pragma unroll
    for (int i = 0; i < Traits::kSums / 4; ++i) *reinterpret_cast<float4*>(spans + i * 512) = sums_of(i);
  }

  static constexpr int kSumStep = 128 * 16;  // bytes from 4 sums of a thread to its next 4

  __device__ void add_shared() {
#pragma unroll
    for (int i = 0; i < Traits::kSums / 4; ++i) add(i, load_shared<float4>(sums_ + i * kSumStep));
  }
  __device__ void keep_shared() const {
#pragma unroll
    for (int i = 0; i < Traits::kSums / 4; ++i) store_shared(sums_ + i * kSumStep, sums_of(i));
  }
  __device__ void add(int i, const float4& earlier) {
    sum_[4 * i] = earlier.x + sum_[4 * i];
    sum_[4 * i + 1] = earlier.y + sum_[4 * i + 1];
    sum_[4 * i + 2] = earlier.z + sum_[4 * i + 2];
    sum_[4 * i + 3] = earlier.w + sum_[4 * i + 3];
  }
  __device__ float4 sums_of(int i) const {
    return make_float4(sum_[4 * i], sum_[4 * i + 1], sum_[4 * i + 2], sum_[4 * i + 3]);
  }

  /// Rows go through shared memory, where this warp's sums of chunks lay, so that each is written whole.
  /// Piece p of 16 bytes of row r lies where piece p ^ (r % 8) would.
  __device__ void write(const PrefillUnit& unit) const {
    constexpr int kPieces = Traits::kDim / 8;  // a row
    constexpr int kRowsAtOnce = 32 / kPieces;  // that a warp writes, 512 bytes
    int lane = lane_;
    asm volatile("" : "+r"(lane));  // places are computed here, not kept in registers through the loop
    const std::uint32_t mine = sums_ - 16 * lane;
    const auto row_at = [&](int row) {
      return mine + row / kRowsAtOnce * kSumStep + row % kRowsAtOnce * (512 / kRowsAtOnce);
    };
    __syncwarp();
    const std::uint32_t to = row_at(lane & 15);
    const int high = lane >> 4;
#pragma unroll
    for (int j = 0; j < kPieces; j += 2) {
      std::uint32_t matrices[4];  // rows 0 to 7 and 8 to 15 of pieces j and j + 1
#pragma unroll
      for (int i = 0; i < 4; ++i)
        matrices[i] = pack<Element>(factors_[i & 1].gain * sum_[4 * (j + i / 2) + 2 * (i & 1)],
                                    factors_[i & 1].gain * sum_[4 * (j + i / 2) + 2 * (i & 1) + 1]);
      store_matrices(to + (((j + high) ^ (lane & 7)) << 4), matrices);
    }
    __syncwarp();
    const int piece = lane % kPieces;
#pragma unroll
    for (int i = 0; i < 16; i += kRowsAtOnce) {
      const int row = i + lane / kPieces;
      const int row_of_unit = row_ - lane / 4 + row;
      const int token = row_of_unit >> args_.group_shift;
      if (unit.token + token >= unit.tokens) continue;
      const int head = (unit.kv_head << args_.group_shift) + row_of_unit - (token << args_.group_shift);
      auto* const out = static_cast<Element*>(args_.out) +
                        (unit.first_row + unit.token + token) * args_.out_stride + head * Traits::kDim;
      reinterpret_cast<uint4*>(out)[piece] = load_shared<uint4>(row_at(row) + ((piece ^ (row & 7)) << 4));
    }
    __syncwarp();
  }

  const PrefillArgs& args_;
  const PrefillLayout<Traits>& layout_;
  const PrefillShare share_;
  const std::uint64_t keys_, values_;  // operands
  const std::uint32_t sums_;           // this thread's sums of chunks
  const int group_, thread_, lane_;    // warpgroup, thread of it
  const int row_;                      // of the unit; and row_ + 8
  const std::uint32_t most_;
  int key_count_ = 0;  // tiles so far, of all units; queries are tiles of keys
  int value_count_ = 0;

  // Of the unit.
  int last_key_;  // keys that its last row sees
  int first_position_;
  bool has_rows_;  // this warpgroup
  int limit_[2];   // last visible key of this thread's rows
  HeadFactors factors_[2];
  PoolHistory<Traits::kPool> history_[2];
  OnlineSoftmax softmax_[2];
  std::uint32_t query_[Traits::kDim / 16][4];
  std::uint32_t weights_[Traits::kKeys / 16][4];
  float sum_[Traits::kSums];  // of the chunk
};

}  // namespace asynct::cuda
