#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/weights.cuh"
#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"

// AsyncI prefill over a paged cache (sm_90a): many query rows a sequence, causal, bound by the matrix units.
//
// Floor: 4 D flops a visible (row, key) pair at the matrix rate.
//
// A block owns 128 query rows of one KV head (tokens times the heads of its group) and goes through their
// keys in tiles of 128: a producer warp asks the copy engine for tiles, two warpgroups of 64 rows multiply,
// each on its own: while one turns scores into weights the other has the matrix units. Weights need no
// maximum and no rescaled sum; they stay in registers as the left operand of the second product.
//
// The copy engine permutes the keys of a page: row 8 j + 2 t + e of 16 holds key 4 t + 2 j + e, so a lane of
// a quad owns 4 consecutive keys and pooling takes pool_size - 1 shuffles for 16 keys. Values lie in the same
// order.
//
// Sums are decode's: a chunk in the accumulators, chunks of a span in registers, spans in shared memory.
namespace asynct::cuda {

template <class ElementType, int kHeadDim, int kPoolSize>
struct PrefillTraits {
  using Element = ElementType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kPool = kPoolSize;
  static constexpr int kGroups = 2;  // consumer warpgroups
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kKeys = 128;  // of a tile
  static constexpr int kStages = kDim == 64 ? 4 : 2;
  static constexpr int kHalves = kDim / 64;
  static constexpr int kHalfBytes = kKeys * 128;  // 64 columns of a tile of keys, or values
  static constexpr int kTileBytes = kHalves * kHalfBytes;
  static constexpr int kQueryHalfBytes = kRows * 128;
  static constexpr int kQueryBytes = kHalves * kQueryHalfBytes;
  static constexpr int kSpanBytes = kRows * kDim * 4;
  static constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes + kSpanBytes + 256 + 1024;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kSums = kDim / 2;  // floats a thread of the sum of 64 rows

  static_assert(kRows == kPrefillRows, "the plan's units");
  static_assert(kSharedBytes <= 232448, "shared memory of a block");
  static_assert(kChunkKeys % kKeys == 0, "a tile belongs to one chunk");
};

/// Barriers of a block: of the queries, and by stage and operand of full and of free tiles.
template <int kStages>
struct PrefillBarriers {
  std::uint32_t base;
  __device__ std::uint32_t query_full() const { return base; }
  __device__ std::uint32_t query_free() const { return base + 8; }
  __device__ std::uint32_t key_full(int stage) const { return base + 8 * (2 + stage); }
  __device__ std::uint32_t value_full(int stage) const { return base + 8 * (2 + kStages + stage); }
  __device__ std::uint32_t key_free(int stage) const { return base + 8 * (2 + 2 * kStages + stage); }
  __device__ std::uint32_t value_free(int stage) const { return base + 8 * (2 + 3 * kStages + stage); }
};

/// The units of a block: every gridDim.x-th, forth and back, so that none gets the longest of each round.
__device__ inline int prefill_unit(int round) {
  const int block = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(gridDim.x);
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

template <class Traits>
__device__ inline int prefill_tiles(const PrefillUnit& unit) {
  return divide_up(unit.last_key, Traits::kKeys);
}

template <class Traits>
__device__ inline void prefill_load_queries(const PrefillArgs& args, const PrefillUnit& unit, int round,
                                            PrefillBarriers<Traits::kStages> barriers, std::uint32_t to) {
  if (round > 0) barrier_wait(barriers.query_free(), (round - 1) & 1);
  barrier_arrive_expect(barriers.query_full(), Traits::kQueryBytes);
  for (int half = 0; half < Traits::kHalves; ++half)
    tma_load(to + half * Traits::kQueryHalfBytes, args.query_map, barriers.query_full(), 0, 0,
             unit.first_row + unit.token, half, unit.kv_head);
}

/// A warp that asks for all tiles of keys, or of values: 16 keys and 64 columns a copy. `queries`: and for
/// the units' rows.
template <class Traits>
__device__ inline void prefill_produce(const PrefillArgs& args, const KvView& view, const CUtensorMap& map,
                                       PrefillBarriers<Traits::kStages> barriers, std::uint32_t full,
                                       std::uint32_t free, std::uint32_t to, std::uint32_t queries,
                                       int lane) {
  constexpr int kParts = Traits::kKeys / 16;
  const int in_block = (1 << args.block_shift) - 1;
  const int part = lane % kParts;
  const int half = lane / kParts;
  int count = 0;  // tiles so far
  for (int round = 0; prefill_unit(round) < args.unit_count; ++round) {
    const PrefillUnit unit = args.units[prefill_unit(round)];
    const std::int32_t* const table =
        args.block_table + static_cast<std::int64_t>(unit.sequence) * args.max_blocks;
    if (queries != 0 && lane == 0) prefill_load_queries<Traits>(args, unit, round, barriers, queries);
    for (int tile = 0; tile < prefill_tiles<Traits>(unit); ++tile, ++count) {
      const int stage = count % Traits::kStages;
      // Parts past the end repeat the last one: their weights are zeros, what lies there must be finite.
      const int key = min(tile * Traits::kKeys + 16 * part, (unit.last_key - 1) & ~15);
      const int block = __ldg(table + (key >> args.block_shift));
      if (count >= Traits::kStages) barrier_wait(free + 8 * stage, (count / Traits::kStages - 1) & 1);
      if (lane == 0) barrier_arrive_expect(full + 8 * stage, Traits::kTileBytes);
      __syncwarp();
      if (half < Traits::kHalves)
        tma_load(to + stage * Traits::kTileBytes + half * Traits::kHalfBytes + 16 * part * 128, map,
                 full + 8 * stage,
                 static_cast<int>(unit.kv_head * view.head_stride + (key & in_block) * view.token_stride) +
                     64 * half,
                 0, 0, 0, block);
      __syncwarp();
    }
  }
}

/// 64 query rows of each unit through all tiles.
template <class Traits>
class PrefillRows {
 public:
  using Element = typename Traits::Element;

  __device__ PrefillRows(const PrefillArgs& args, PrefillBarriers<Traits::kStages> barriers,
                         std::uint32_t query, std::uint32_t keys, std::uint32_t values, float* spans,
                         int group, int thread)
      : args_(args),
        barriers_(barriers),
        query_rows_(query + group * 64 * 128),
        query_(wgmma::operand(query + group * 64 * 128, 1024, 16)),
        keys_(wgmma::operand(keys, 1024, 16)),
        values_(wgmma::operand(values, 1024, Traits::kHalfBytes)),
        value_tiles_(values),
        spans_(spans + group * 64 * Traits::kDim + thread),
        group_(group),
        thread_(thread),
        lane_(thread % 32),
        row_(64 * group + 16 * (thread / 32) + (thread % 32) / 4) {}

  __device__ void run() {
    for (int round = 0; prefill_unit(round) < args_.unit_count; ++round) {
      begin(prefill_unit(round));
      barrier_wait(barriers_.query_full(), round & 1);
      if (args_.query_scale != 1.f) scale_queries();
      multiply();
      write();
    }
  }

 private:
  __device__ void begin(int index) {
    unit_ = args_.units[index];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + 8 * half;
      const int token = row / args_.group;
      const int head = unit_.kv_head * args_.group + row - token * args_.group;
      // Rows past the end see what the last one sees; they are not written.
      limit_[half] = min(unit_.first_position + token, unit_.last_key - 1);
      factors_[half] = args_.factors[head];
      history_[half] = {};
    }
#pragma unroll
    for (int i = 0; i < Traits::kSums; ++i) total_[i] = 0;
  }

  __device__ void scale_queries() const {
    constexpr int kPieces = 8 * 64 / 128;  // of 16 bytes, a thread and 64 columns
#pragma unroll
    for (int half = 0; half < Traits::kHalves; ++half)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const std::uint32_t at = query_rows_ + half * Traits::kQueryHalfBytes + 16 * (thread_ + 128 * i);
        uint4 piece = load_shared(at);
        piece.x = scale_packed<Element>(piece.x, args_.query_scale);
        piece.y = scale_packed<Element>(piece.y, args_.query_scale);
        piece.z = scale_packed<Element>(piece.z, args_.query_scale);
        piece.w = scale_packed<Element>(piece.w, args_.query_scale);
        store_shared(at, piece);
      }
    fence_async_shared();
    barrier_sync(1 + group_, 128);
  }

  /// Scores of a tile are asked for before the values of the one before: weights are made while the matrix
  /// units add.
  __device__ void multiply() {
    constexpr int kChunkTiles = kChunkKeys / Traits::kKeys;
    const int tiles = prefill_tiles<Traits>(unit_);
    // Tiles of which every row sees every key.
    const int whole = (unit_.first_position + 1) / Traits::kKeys;
    for (int tile = 0; tile < tiles; ++tile, ++count_) {
      const int stage = count_ % Traits::kStages;
      const int before = (count_ + Traits::kStages - 1) % Traits::kStages;
      float scores[Traits::kKeys / 2];
      barrier_wait(barriers_.key_full(stage), count_ / Traits::kStages & 1);
      score(stage, scores);
      if (tile > 0) {
        barrier_wait(barriers_.value_full(before), (count_ - 1) / Traits::kStages & 1);
        add_values(before, (tile - 1) % kChunkTiles != 0);
        wgmma::wait<1>();
      } else {
        wgmma::wait<0>();
      }
      wgmma::touch(scores);
      if (lane_ == 0) {
        barrier_arrive(barriers_.key_free(stage));
        if (tile + 1 == tiles) barrier_arrive(barriers_.query_free());
      }
      if (tile >= whole)
        weigh<true, false>(tile * Traits::kKeys, scores);
      else if (args_.plain)
        weigh<false, true>(tile * Traits::kKeys, scores);
      else
        weigh<false, false>(tile * Traits::kKeys, scores);
      wgmma::wait<0>();
      wgmma::touch(sum_);
      if (lane_ == 0 && tile > 0) barrier_arrive(barriers_.value_free(before));
      if (tile > 0 && tile % kChunkTiles == 0) end_chunk(tile / kChunkTiles);
      round_weights(scores);
    }
    const int last = (count_ - 1) % Traits::kStages;
    barrier_wait(barriers_.value_full(last), (count_ - 1) / Traits::kStages & 1);
    if (tiles * Traits::kKeys > unit_.last_key) clear_values(last, tiles - 1);
    add_values(last, (tiles - 1) % kChunkTiles != 0);
    wgmma::wait<0>();
    wgmma::touch(sum_);
    if (lane_ == 0) barrier_arrive(barriers_.value_free(last));
    end_chunk(0);
    if (divide_up(tiles, kChunkTiles) > kSpanChunks) {
#pragma unroll
      for (int i = 0; i < Traits::kSums; ++i) total_[i] = spans_[i * 128] + total_[i];
    }
  }

  __device__ void score(int stage, float (&scores)[Traits::kKeys / 2]) const {
    const std::uint64_t keys = wgmma::advance(keys_, stage * Traits::kTileBytes);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < Traits::kDim / 16; ++i)
      wgmma::SharedProduct<Traits::kKeys, 0>::multiply(
          wgmma::advance(query_, i / 4 * Traits::kQueryHalfBytes + i % 4 * 32),
          wgmma::advance(keys, i / 4 * Traits::kHalfBytes + i % 4 * 32), scores, i > 0);
    wgmma::commit();
  }

  __device__ void add_values(int stage, bool accumulate) {
    const std::uint64_t values = wgmma::advance(values_, stage * Traits::kTileBytes);
    wgmma::fence();
#pragma unroll
    for (int i = 0; i < Traits::kKeys / 16; ++i)
      wgmma::RegisterProduct<Traits::kDim, 1>::multiply(weights_[i], wgmma::advance(values, i * 16 * 128),
                                                        sum_, accumulate || i > 0);
    wgmma::commit();
  }

  /// What lies past the last key may be no number, and zero times that is none either.
  __device__ void clear_values(int stage, int tile) const {
    const std::uint32_t values = value_tiles_ + stage * Traits::kTileBytes;
    constexpr int kPieces = 8 * Traits::kHalves;
    const int valid = unit_.last_key - tile * Traits::kKeys;
    for (int i = thread_; i < (Traits::kKeys - valid) * kPieces; i += 128) {
      const int key = valid + i / kPieces;
      const int row = (key & ~15) + 8 * (key >> 1 & 1) + 2 * (key >> 2 & 3) + (key & 1);
      const int piece = i % kPieces;
      store_zeros(values + piece / 8 * Traits::kHalfBytes + row * 128 + piece % 8 * 16);
    }
    fence_async_shared();
    barrier_sync(1 + group_, 128);
  }

  /// Scores to weights in place, 16 keys at a time.
  template <bool kMasked, bool kPlain>
  __device__ void weigh(int first_key, float (&scores)[Traits::kKeys / 2]) {
#pragma unroll
    for (int i = 0; i < Traits::kKeys / 16; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto at = [&](int k) -> float& { return scores[8 * i + 4 * (k >> 1) + 2 * half + (k & 1)]; };
        float r[4], sum[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) r[k] = fmaxf(at(k), args_.pool_floor);
        pool<Traits::kPool>(r, history_[half], lane_, sum);
        const int left = limit_[half] - (first_key + 16 * i + 4 * (lane_ & 3));
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float a =
              kPlain ? plain_weight(factors_[half], at(k), sum[k]) : weight(factors_[half], at(k), sum[k]);
          at(k) = !kMasked || k <= left ? a : 0.f;
        }
      }
    }
  }

  /// Weights as the left operand of the product with values: the layouts agree.
  __device__ void round_weights(const float (&scores)[Traits::kKeys / 2]) {
#pragma unroll
    for (int i = 0; i < Traits::kKeys / 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        weights_[i][j] = pack_weights<Element>(scores[8 * i + 2 * j], scores[8 * i + 2 * j + 1]);
  }

  /// The chunk's sum goes to its span's; `next` is the chunk that begins, 0 at the end of all.
  __device__ void end_chunk(int next) {
#pragma unroll
    for (int i = 0; i < Traits::kSums; ++i) total_[i] += sum_[i];
    if (next == 0 || next % kSpanChunks != 0) return;
#pragma unroll
    for (int i = 0; i < Traits::kSums; ++i) {
      spans_[i * 128] = next == kSpanChunks ? total_[i] : spans_[i * 128] + total_[i];
      total_[i] = 0;
    }
  }

  __device__ void write() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + 8 * half;
      const int token = row / args_.group;
      if (unit_.token + token >= unit_.tokens) continue;
      const int head = unit_.kv_head * args_.group + row - token * args_.group;
      auto* const to = static_cast<Element*>(args_.out) +
                       (unit_.first_row + unit_.token + token) * args_.out_stride + head * Traits::kDim +
                       2 * (lane_ & 3);
#pragma unroll
      for (int j = 0; j < Traits::kDim / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(to + 8 * j) =
            pack<Element>(factors_[half].gain * total_[4 * j + 2 * half],
                          factors_[half].gain * total_[4 * j + 2 * half + 1]);
    }
  }

  const PrefillArgs& args_;
  const PrefillBarriers<Traits::kStages> barriers_;
  const std::uint32_t query_rows_;             // this warpgroup's, in shared memory
  const std::uint64_t query_, keys_, values_;  // operands
  const std::uint32_t value_tiles_;
  float* const spans_;               // this thread's sums of spans, 128 floats apart
  const int group_, thread_, lane_;  // warpgroup, thread of it
  const int row_;                    // of the block; and row_ + 8
  int count_ = 0;                    // tiles so far, of all units

  // Of the unit.
  PrefillUnit unit_;
  int limit_[2];  // last visible key
  HeadFactors factors_[2];
  PoolHistory<Traits::kPool> history_[2];
  std::uint32_t weights_[Traits::kKeys / 16][4];
  float sum_[Traits::kSums];    // of the chunk
  float total_[Traits::kSums];  // of the span's earlier chunks
};

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArgs args) {
  extern __shared__ unsigned char shared[];
  unsigned char* const aligned = shared + ((1024 - (shared_address(shared) & 1023)) & 1023);
  const std::uint32_t query = shared_address(aligned);
  const std::uint32_t keys = query + Traits::kQueryBytes;
  const std::uint32_t values = keys + Traits::kStages * Traits::kTileBytes;
  float* const spans =
      reinterpret_cast<float*>(aligned + Traits::kQueryBytes + 2 * Traits::kStages * Traits::kTileBytes);
  const PrefillBarriers<Traits::kStages> barriers = {values + Traits::kStages * Traits::kTileBytes +
                                                     Traits::kSpanBytes};
  const int thread = threadIdx.x;
  if (thread == 0) {
    tma_prefetch(args.query_map);
    tma_prefetch(args.key_map);
    tma_prefetch(args.value_map);
    barrier_init(barriers.query_full(), 1);
    barrier_init(barriers.query_free(), 4 * Traits::kGroups);
    for (int i = 0; i < Traits::kStages; ++i) {
      barrier_init(barriers.key_full(i), 1);
      barrier_init(barriers.value_full(i), 1);
      barrier_init(barriers.key_free(i), 4 * Traits::kGroups);
      barrier_init(barriers.value_free(i), 4 * Traits::kGroups);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int group = thread / 128;
  if (group == Traits::kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    const int warp = thread % 128 / 32;
    if (warp == 0)
      prefill_produce<Traits>(args, args.key, args.key_map, barriers, barriers.key_full(0),
                              barriers.key_free(0), keys, query, thread % 32);
    else if (warp == 1)
      prefill_produce<Traits>(args, args.value, args.value_map, barriers, barriers.value_full(0),
                              barriers.value_free(0), values, 0, thread % 32);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    PrefillRows<Traits>(args, barriers, query, keys, values, spans, group, thread % 128).run();
  }
}

}  // namespace asynct::cuda
