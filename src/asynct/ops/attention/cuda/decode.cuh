#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/weights.cuh"
#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/tma.cuh"

// AsyncI decode over a paged cache (sm_90): few query rows, bound by the bytes of K and V.
//
// Floor: (K + V bytes) / read bandwidth; a key and KV head are 4 D bytes, once for all query heads of the
// group.
//
// A warp owns a unit, some chunks of one KV head's keys, and goes through it in tiles of kTileKeys keys: keys
// come by the copy engine into the warp's own ring in shared memory, scores by matrix instructions with the
// query rows padded to 16, weights in registers. Only then are the value rows that some query row gives
// weight fetched, and used kStages steps later: exact zeros cost no bytes, and what lies there does not
// matter. No barrier joins warps. The keys of the next unit are on their way before one ends.
//
// Once the bytes are saved, instructions are what limits, hence: one copy instruction for a tile of keys,
// values as the left operand (the sum then holds 8 query rows and not 16), no unrolled ring.
//
// A unit that begins a span adds its chunks' sums in registers; the others leave theirs in `partial`. The
// last warp of a span to arrive adds the span's sums in order, the last of all spans those. Which warp that
// is changes nothing.
namespace asynct::cuda {

template <class ElementType, int kHeadDim, int kPoolSize, int kRowBlockCount>
struct DecodeTraits {
  using Element = ElementType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kPool = kPoolSize;
  static constexpr int kRowBlocks = kRowBlockCount;  // of 8 query rows
  static constexpr int kStages = kDim == 64 ? 6 : 3;
  static constexpr int kWarps = 8;
  static constexpr int kNeighbours = 4;  // units of one chunk whose rows lie side by side: warps of one block
  static constexpr int kHalves = kDim / 64;  // a copied row of keys is 128 bytes
  static constexpr int kHalfBytes = kTileKeys * 128;
  static constexpr int kTileBytes = kHalves * kHalfBytes;
  static constexpr int kWarpBytes = 2 * kStages * kTileBytes;                      // keys, then values
  static constexpr int kSharedBytes = kWarps * (kWarpBytes + kStages * 8) + 1024;  // with barriers; alignment
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kCopyRows = 32 * 16 / kRowBytes;  // value rows that one instruction copies
  static constexpr int kCopies = kTileKeys / kCopyRows;
  static constexpr int kDepthSteps = kDim / 16;  // of a score
  static constexpr int kOutBlocks = kDim / 16;   // of 16 value columns

  static constexpr bool kKeepsTotal = kRowBlocks == 1;  // registers

  static_assert(kRowBlocks * 8 <= kDecodeRows);
  static_assert(kWarps % kNeighbours == 0);
};

template <class Traits>
class DecodeWarp {
 public:
  using Element = typename Traits::Element;

  __device__ DecodeWarp(const DecodeArgs& args, std::uint32_t ring, std::uint32_t barriers, int lane)
      : args_(args),
        ring_(ring),
        values_(ring + Traits::kStages * Traits::kTileBytes),
        barriers_(barriers),
        lane_(lane),
        g_(lane >> 2),
        t_(lane & 3) {
    // Row c = 8 j + 2 t + e of an operand is key 4 t + 2 j + e: a lane's columns are consecutive keys.
    const int r = lane & 7;
    const int matrix = lane >> 3;
    const int key = 4 * (r >> 1) + 2 * (matrix >> 1) + (r & 1);
    score_row_ = key * 128 + (((matrix & 1) ^ (key & 7)) << 4);
    // Value rows lie in that order.
    const int row = 8 * (matrix >> 1) + r;
    value_row_ = row * Traits::kRowBytes + (((matrix & 1) ^ r) << 4);
    copy_key_ = lane / (32 / Traits::kCopyRows);
    copy_piece_ = lane % (32 / Traits::kCopyRows);
    const int to = 8 * (copy_key_ >> 1) + (copy_key_ & 1);
    copy_to_ = to * Traits::kRowBytes + ((copy_piece_ ^ (to & 7)) << 4);
  }

  /// Units first, first + stride, ... A step of a unit is its halo (the keys that its first keys are pooled
  /// with) or a tile. Keys are asked for kStages steps ahead, over the end of a unit; values are added
  /// kStages steps behind.
  __device__ void run(int first, int stride) {
    if (first >= args_.unit_count) return;
    stride_ = stride;
    load_index_ = first;
    load_ = look_up(first);
    load_step_ = 0;
    wait_for_launcher();  // the plan is older than the kernel before this one, queries and keys are not
    for (int i = 0; i < Traits::kStages; ++i) load_keys(i);
    clear_out();
#pragma unroll
    for (int i = 0; i < Traits::kStages; ++i) waiting_[i] = {.unit = -1};
    int stage = 0;
    std::uint32_t parity = 0;
    for (int index = first; index < args_.unit_count; index += stride) {
      Unit unit = look_up(index);
      start(index);
      for (int step = 0; step < unit.steps; ++step) {
        const int tile = step - unit.halo;
        float x[2][4];
        barrier_wait(barriers_ + 8 * stage, parity);
        score(stage, x);
        __syncwarp();
        load_keys(stage);
        Step now;
        now.needed = weigh(unit.first_key + tile * kTileKeys, x, now.weights);
        if (tile < 0) now.needed = 0;
        const bool ends_chunk = step + 1 == unit.steps || (tile + 1) % (kChunkKeys / kTileKeys) == 0;
        now.unit = ends_chunk && tile >= 0 ? index : -1;
        now.chunk = (unit.first_key + tile * kTileKeys) / kChunkKeys;
        add_oldest(stage);
        if (tile >= 0) {
          const int2 blocks = blocks_of(unit, tile);
          if (now.needed != 0) load_values(stage, unit, tile, blocks, now.needed);
        }
        copy_async_commit();
        push(now);
        if (++stage == Traits::kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    for (int i = 0; i < Traits::kStages; ++i) {
      add_oldest(stage);
      copy_async_commit();
      push({.unit = -1});
      if (++stage == Traits::kStages) stage = 0;
    }
  }

 private:
  /// Where a unit's keys lie.
  struct Unit {
    int kv_head, first_key, last_key;
    int halo;                   // 1 when there is one
    int steps;                  // 0: there is no such unit
    const std::int32_t* table;  // of the sequence
    int halo_block;             // of key first_key - 1
    int block, next_block;  // of the group of 8 keys, one a lane, of the current 32 groups and of the next
  };

  /// A step whose values are on their way.
  struct Step {
    std::uint32_t weights[Traits::kRowBlocks][2];
    std::uint32_t needed;  // keys; 0: nothing to add
    int unit;              // whose chunk ends with it, or -1
    int chunk;
  };

  __device__ void push(const Step& step) {
#pragma unroll
    for (int i = 1; i < Traits::kStages; ++i) waiting_[i - 1] = waiting_[i];
    waiting_[Traits::kStages - 1] = step;
  }

  __device__ void add_oldest(int stage) {
    copy_async_wait<Traits::kStages - 1>();
    __syncwarp();
    if (waiting_[0].needed != 0) add_values(stage, waiting_[0].weights);
    if (waiting_[0].unit >= 0) end_chunk(waiting_[0].unit, waiting_[0].chunk);
    __syncwarp();
  }

  __device__ Unit look_up(int index) const {
    Unit unit = {};
    if (index >= args_.unit_count) return unit;
    const DecodeUnit& from = args_.units[index];
    unit.kv_head = from.kv_head;
    unit.first_key = from.chunk * kChunkKeys;
    unit.last_key = min(from.context, unit.first_key + from.chunks * kChunkKeys);
    unit.halo = Traits::kPool > 1 && from.chunk > 0 ? 1 : 0;
    unit.steps = unit.halo + divide_up(unit.last_key - unit.first_key, kTileKeys);
    unit.table = args_.block_table + static_cast<std::int64_t>(from.sequence) * args_.max_blocks;
    if (unit.halo > 0) unit.halo_block = __ldg(unit.table + ((unit.first_key - 1) >> args_.block_shift));
    unit.next_block = block_at(unit, 0);
    return unit;
  }

  /// Of 8 keys, no block holds fewer.
  __device__ int block_at(const Unit& unit, int group) const {
    const int key = unit.first_key + 8 * (group + lane_);
    return key < unit.last_key ? __ldg(unit.table + (key >> args_.block_shift)) : 0;
  }

  /// Blocks of a tile's keys 0 to 7 and 8 to 15. Tiles come in order.
  __device__ int2 blocks_of(Unit& unit, int tile) const {
    if (tile % 16 == 0) {
      unit.block = unit.next_block;
      unit.next_block = block_at(unit, 2 * tile + 32);
    }
    return make_int2(__shfl_sync(~0u, unit.block, 2 * tile % 32),
                     __shfl_sync(~0u, unit.block, 2 * tile % 32 + 1));
  }

  /// Queries and factors of a unit into registers.
  __device__ void start(int index) {
    const DecodeUnit& unit = args_.units[index];
    const int rows = unit.tokens * args_.group;
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block) {
      const int row = g_ + 8 * block;
      const bool used = row < rows;
      const int token = used ? row / args_.group : 0;
      const int head = unit.kv_head * args_.group + (used ? row - token * args_.group : 0);
      limit_[block] = used ? unit.context - unit.tokens + token : -1;
      factors_[block] = args_.factors[head];
      history_[block] = {};
      const auto* const query = static_cast<const Element*>(args_.query) +
                                (unit.first_row + token) * args_.query_stride + head * Traits::kDim + 2 * t_;
#pragma unroll
      for (int i = 0; i < Traits::kDepthSteps; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t pair =
              used ? __ldg(reinterpret_cast<const std::uint32_t*>(query + 16 * i + 8 * half)) : 0;
          query_[block][i][half] = scale_packed<Element>(pair, args_.query_scale);
        }
      }
    }
  }

  __device__ void clear_out() {
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block)
#pragma unroll
      for (int i = 0; i < Traits::kOutBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out_[block][i][j] = 0;
  }

  /// The keys of the step that comes kStages steps from now.
  __device__ void load_keys(int stage) {
    if (load_step_ == load_.steps) {
      load_ = look_up(load_index_ += stride_);
      load_step_ = 0;
    }
    if (load_.steps == 0) return;
    const int tile = load_step_++ - load_.halo;
    const std::uint32_t barrier = barriers_ + 8 * stage;
    const std::uint32_t to = ring_ + stage * Traits::kTileBytes;
    const int in_block = (1 << args_.block_shift) - 1;
    if (tile < 0) {
      // Only the last keys; what else lies in the tile gives scores that nobody reads.
      if (lane_ == 0) {
        const int key = (load_.first_key - kHaloKeys) & in_block;
        barrier_arrive_expect(barrier, Traits::kHalves * kHaloKeys * 128);
        for (int half = 0; half < Traits::kHalves; ++half)
          tma_load(to + half * Traits::kHalfBytes + (kTileKeys - kHaloKeys) * 128, args_.halo_map, barrier, 0,
                   key, half, load_.kv_head, load_.halo_block);
      }
      return;
    }
    const int key = load_.first_key + tile * kTileKeys;
    const int2 blocks = blocks_of(load_, tile);
    if (lane_ != 0) return;
    if (args_.block_shift >= 4) {
      barrier_arrive_expect(barrier, Traits::kTileBytes);
      tma_load(to, args_.key_map, barrier, 0, key & in_block, 0, load_.kv_head, blocks.x);
    } else {
      const bool both = key + 8 < load_.last_key;
      barrier_arrive_expect(barrier, both ? Traits::kTileBytes : Traits::kTileBytes / 2);
      for (int half = 0; half < Traits::kHalves; ++half) {
        tma_load(to + half * Traits::kHalfBytes, args_.key_map, barrier, 0, 0, half, load_.kv_head, blocks.x);
        if (both)
          tma_load(to + half * Traits::kHalfBytes + 1024, args_.key_map, barrier, 0, 0, half, load_.kv_head,
                   blocks.y);
      }
    }
  }

  /// <q, k> of a tile: x[block][i] belongs to row g + 8 block and key 4 t + i.
  __device__ void score(int stage, float (&x)[2][4]) const {
    const std::uint32_t keys = ring_ + stage * Traits::kTileBytes + score_row_;
    float sums[2][4] = {};
#pragma unroll
    for (int i = 0; i < Traits::kDepthSteps; ++i) {
      std::uint32_t b[4], a[4];
      load_matrices(b, (keys + i / 4 * Traits::kHalfBytes) ^ (i % 4 << 5));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        a[2 * half] = query_[0][i][half];
        a[2 * half + 1] = Traits::kRowBlocks > 1 ? query_[Traits::kRowBlocks - 1][i][half] : 0;
      }
      multiply_add<Element>(sums[0], a, b[0], b[1]);
      multiply_add<Element>(sums[1], a, b[2], b[3]);
    }
#pragma unroll
    for (int block = 0; block < 2; ++block)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[block][i] = sums[i >> 1][2 * block + (i & 1)];
  }

  /// Weights of the tile that begins at `first_key` as an operand of the product with values; returns the
  /// keys that some row gives weight.
  __device__ std::uint32_t weigh(int first_key, const float (&x)[2][4],
                                 std::uint32_t (&weights)[Traits::kRowBlocks][2]) {
    const int key = first_key + 4 * t_;
    std::uint32_t needed = 0;
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block) {
      float r[4], sum[4], a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = fmaxf(x[block][i], args_.pool_floor);
      pool<Traits::kPool>(r, history_[block], lane_, sum);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = key + i <= limit_[block] ? weight(factors_[block], x[block][i], sum[i]) : 0.f;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const std::uint32_t packed = pack_weights<Element>(a[2 * pair], a[2 * pair + 1]);
        weights[block][pair] = packed;
        needed |= ((packed & 0xffffu ? 1u : 0u) | (packed >> 16 ? 2u : 0u)) << (2 * pair);
      }
    }
    return __reduce_or_sync(~0u, needed << (4 * t_));
  }

  /// The value rows that are needed, zeros for the others.
  __device__ void load_values(int stage, const Unit& unit, int tile, int2 blocks,
                              std::uint32_t needed) const {
    const int in_block = (1 << args_.block_shift) - 1;
    const int key = unit.first_key + tile * kTileKeys + copy_key_;
    const auto* const base = static_cast<const Element*>(args_.value.data) +
                             unit.kv_head * args_.value.head_stride + 8 * copy_piece_;
    const Element* from =
        base + blocks.x * args_.value.block_stride + (key & in_block) * args_.value.token_stride;
    const Element* const from_high =
        base + blocks.y * args_.value.block_stride + ((key + 8) & in_block) * args_.value.token_stride;
    const std::uint32_t to = values_ + stage * Traits::kTileBytes + copy_to_;
    needed >>= copy_key_;
#pragma unroll
    for (int i = 0; i < Traits::kCopies; ++i) {
      if (i == Traits::kCopies / 2) from = from_high;
      const int key_offset = Traits::kCopyRows * i;  // row 8 j + 2 t + e of key 4 t + 2 j + e
      const int row_offset = 2 * (key_offset >> 2) + 8 * (key_offset >> 1 & 1);
      copy_async_16((to + row_offset * Traits::kRowBytes) ^ ((row_offset & 7) << 4), from,
                    (needed >> key_offset & 1) != 0);
      from += Traits::kCopyRows * args_.value.token_stride;
    }
  }

  /// out += values^T weights^T. Rows g and g + 8 of block i are value columns 16 i + g and 16 i + 8 + g.
  __device__ void add_values(int stage, const std::uint32_t (&weights)[Traits::kRowBlocks][2]) {
    const std::uint32_t values = values_ + stage * Traits::kTileBytes + value_row_;
#pragma unroll
    for (int i = 0; i < Traits::kOutBlocks; ++i) {
      std::uint32_t a[4];
      load_matrices_transposed(a, values ^ (i << 5));
#pragma unroll
      for (int block = 0; block < Traits::kRowBlocks; ++block)
        multiply_add<Element>(out_[block][i], a, weights[block][0], weights[block][1]);
    }
  }

  __device__ float* slot(int index) const {
    return args_.partial + static_cast<std::int64_t>(index) * kDecodeRows * Traits::kDim;
  }

  /// Takes the sum of a chunk; with a unit's last, adds up what it completes.
  __device__ void end_chunk(int index, int chunk) {
    const DecodeUnit& unit = args_.units[index];
    const int in_unit = chunk - unit.chunk;
    const bool leads = Traits::kKeepsTotal && unit.chunk % kSpanChunks == 0;
    const bool last = in_unit + 1 == unit.chunks;
    if (leads) {
#pragma unroll
      for (int i = 0; i < Traits::kOutBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          total_[i][j] = in_unit == 0 ? out_[0][i][j] : total_[i][j] + out_[0][i][j];
          if (last) out_[0][i][j] = total_[i][j];
        }
    }
    if (!leads || last) leave(unit, leads ? unit.chunk : chunk);
    clear_out();
    if (last) add_up(unit);
  }

  /// out_ into a slot.
  __device__ void leave(const DecodeUnit& unit, int chunk) const {
    float* const to = slot(unit.first_slot + chunk);
#pragma unroll
    for (int block = 0; block < Traits::kRowBlocks; ++block)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * block + 2 * t_ + e;
        if (row >= unit.tokens * args_.group) continue;
#pragma unroll
        for (int i = 0; i < Traits::kOutBlocks; ++i) {
          to[row * Traits::kDim + 16 * i + g_] = out_[block][i][e];
          to[row * Traits::kDim + 16 * i + 8 + g_] = out_[block][i][2 + e];
        }
      }
  }

  __device__ void add_up(const DecodeUnit& unit) const {
    const int chunks = chunks_of(unit.context);
    const int span = unit.chunk / kSpanChunks;
    const int in_span = min(kSpanChunks, chunks - span * kSpanChunks);
    const int spans = divide_up(chunks, kSpanChunks);
    const int first = unit.first_slot + span * kSpanChunks;
    float* const span_sum = slot(first);
    const int leading = Traits::kKeepsTotal ? unit.leading : 1;  // chunks in the span's first slot
    if (!last_to_arrive(args_.arrived + unit.first_slot + span, unit.chunks, in_span)) return;
    add_slots(unit, span_sum, slot(first + leading), 1, in_span - leading, spans == 1 ? nullptr : span_sum);
    if (spans == 1 || !last_to_arrive(args_.arrived + args_.slots + unit.first_slot, 1, spans)) return;
    add_slots(unit, slot(unit.first_slot), slot(unit.first_slot + kSpanChunks), kSpanChunks, spans - 1,
              nullptr);
  }

  /// Counts `mine` sums; true for the warp that completes `all`, which then sees what the others wrote.
  __device__ bool last_to_arrive(std::uint32_t* counter, int mine, int all) const {
    __syncwarp();
    if (all == mine) return true;
    std::uint32_t arrived = 0;
    if (lane_ == 0) {
      arrived = fetch_add_acq_rel(counter, static_cast<std::uint32_t>(mine)) + mine;
      if (arrived == static_cast<std::uint32_t>(all)) *counter = 0;  // for the next launch
    }
    // The warp's other lanes wrote before lane 0 released, and read after it acquired: __syncwarp orders
    // both.
    __syncwarp();
    return __shfl_sync(~0u, arrived, 0) == static_cast<std::uint32_t>(all);
  }

  /// Adds `count` sums, `step` slots apart, to the first in order; into `sum`, or rounded into the output.
  __device__ void add_slots(const DecodeUnit& unit, const float* first, const float* others, int step,
                            int count, float* sum) const {
    constexpr int kLanesARow = Traits::kDim / 4;
    constexpr int kAtOnce = Traits::kRowBlocks == 1 ? 8 : 4;  // loads in flight
    const int column = 4 * (lane_ % kLanesARow);
    const std::int64_t stride = static_cast<std::int64_t>(step) * kDecodeRows * Traits::kDim;
    for (int row = lane_ / kLanesARow; row < unit.tokens * args_.group; row += 32 / kLanesARow) {
      const int at = row * Traits::kDim + column;
      float4 total = __ldcg(reinterpret_cast<const float4*>(first + at));
      for (int i = 0; i < count; i += kAtOnce) {
        float4 next[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (i + j < count)
            next[j] = __ldcg(reinterpret_cast<const float4*>(others + at + (i + j) * stride));
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          if (i + j >= count) break;
          total.x += next[j].x;
          total.y += next[j].y;
          total.z += next[j].z;
          total.w += next[j].w;
        }
      }
      if (sum != nullptr)
        *reinterpret_cast<float4*>(sum + at) = total;
      else
        write(unit, row, column, total);
    }
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
  const std::uint32_t ring_;             // of key tiles
  const std::uint32_t values_;           // ring of value tiles
  const std::uint32_t barriers_;         // one a stage
  const int lane_, g_, t_;               // g: a query row; t: 4 consecutive keys
  std::uint32_t score_row_, value_row_;  // where this lane's rows of operands lie in a tile
  int copy_key_, copy_piece_;            // what this lane copies of a tile of values
  std::uint32_t copy_to_;

  int stride_, load_index_, load_step_;
  Unit load_;

  // Of the current unit, by block of 8 query rows.
  int limit_[Traits::kRowBlocks];  // last visible key of row g
  HeadFactors factors_[Traits::kRowBlocks];
  PoolHistory<Traits::kPool> history_[Traits::kRowBlocks];
  std::uint32_t query_[Traits::kRowBlocks][Traits::kDepthSteps][2];

  Step waiting_[Traits::kStages];                         // oldest first
  float out_[Traits::kRowBlocks][Traits::kOutBlocks][4];  // of the oldest step's chunk
  float total_[Traits::kOutBlocks][4];                    // of its unit, when that begins a span
};

template <class Traits>
__global__ void __launch_bounds__(Traits::kWarps * 32, 1)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  extern __shared__ unsigned char shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const std::uint32_t rings = (shared_address(shared) + 1023) & ~1023u;
  const std::uint32_t barriers = rings + Traits::kWarps * Traits::kWarpBytes + warp * Traits::kStages * 8;
  launch_dependents();
  if (lane == 0) {
    tma_prefetch(args.key_map);
    tma_prefetch(args.halo_map);
    for (int i = 0; i < Traits::kStages; ++i) barrier_init(barriers + 8 * i, 1);
    barrier_init_fence();
  }
  __syncwarp();
  DecodeWarp<Traits> self(args, rings + warp * Traits::kWarpBytes, barriers, lane);
  // Few units are spread over all multiprocessors, neighbours together.
  const int team = warp / Traits::kNeighbours;
  const int first = (team * gridDim.x + blockIdx.x) * Traits::kNeighbours + warp % Traits::kNeighbours;
  self.run(first, Traits::kWarps * gridDim.x);
}

}  // namespace asynct::cuda
