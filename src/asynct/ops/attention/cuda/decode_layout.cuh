#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/cuda/barrier.cuh"

// What the warps of a block of decode share: sizes, places in shared memory, barriers, the walk over units.
namespace asynct::cuda {

template <class ElementType, int kHeadDim, int kPoolSize, int kRowBlockCount>
struct DecodeTraits {
  using Element = ElementType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kPool = kPoolSize;
  static constexpr int kRowBlocks = kRowBlockCount;  // of 8 query rows
  static constexpr int kScoreWarps = 2;
  static constexpr int kKeyCopyWarps = 2;  // one asks for 64 keys in 0.6 us: a third of what memory gives
  static constexpr int kValueCopyWarps = 3;
  static constexpr int kThreads = 32 * (kSumWarps + kScoreWarps + kKeyCopyWarps + kValueCopyWarps + 1);

  static constexpr int kHalves = kDim / 64;  // a copied row is 128 bytes
  static constexpr int kHalfBytes = kTileKeys * 128;
  static constexpr int kTileBytes = kHalves * kHalfBytes;
  static constexpr int kStageTiles = kStageKeys / kTileKeys;
  static constexpr int kKeyBytes =
      (kStageTiles + 1) * kTileBytes;  // the last: kHaloKeys rows before the others
  static constexpr int kValueBytes = kStageTiles * kTileBytes;
  static constexpr int kWeightTileBytes = 256 * kRowBlocks;  // operands: 8 bytes a lane and block of rows
  static constexpr int kWeightBytes = kStageTiles * kWeightTileBytes;

  // What is on its way: 96 KB of keys and 80 of values, for 1.5 us at the rate of a multiprocessor that has
  // three others' share of the memory.
  static constexpr int kKeyStages = kDim == 64 ? 10 : 6;
  static constexpr int kValueStages = kDim == 64 ? 10 : 5;
  static constexpr int kWeightStages =
      kDim == 64 ? 16 : 16 / kRowBlocks;  // scores may run this far ahead of sums

  static constexpr int kSumBytes = 8 * kRowBlocks * kDim * 4;  // of a chunk
  static constexpr int kSumStages = 2 / kRowBlocks;

  static constexpr int kOutBlocks = kDim / 16 / kSumWarps;  // of 16 value columns, of a warp

  static_assert(kRowBlocks * 8 <= kDecodeRows);
  // Warps that take stages in turn are less than a round of a ring ahead of the slowest.
  static_assert(kKeyStages >= kScoreWarps && kValueStages > kValueCopyWarps && kWeightStages > kValueStages);
  static_assert(kDim % (16 * kSumWarps) == 0);
};

template <class Traits>
struct DecodeLayout {
  static constexpr int kKeys = 0;
  static constexpr int kValues = kKeys + Traits::kKeyStages * Traits::kKeyBytes;
  static constexpr int kWeights = kValues + Traits::kValueStages * Traits::kValueBytes;
  static constexpr int kSums = kWeights + Traits::kWeightStages * Traits::kWeightBytes;
  static constexpr int kNeeded = kSums + Traits::kSumStages * Traits::kSumBytes;
  static constexpr int kBarriers = kNeeded + Traits::kWeightStages * 16;
  static constexpr int kBarrierCount =
      2 * (Traits::kKeyStages + Traits::kValueStages + Traits::kWeightStages + Traits::kSumStages);
  static constexpr int kSharedBytes = kBarriers + 8 * kBarrierCount + 1024;  // alignment
  static_assert(kSharedBytes <= kMostSharedBytes, "shared memory of a block");

  std::uint32_t base;  // aligned to 1,024 bytes

  // Of the n-th stage of the block's keys, counted over all units.
  __device__ std::uint32_t keys(int n) const {
    return base + kKeys + n % Traits::kKeyStages * Traits::kKeyBytes;
  }
  __device__ std::uint32_t values(int n) const {
    return base + kValues + n % Traits::kValueStages * Traits::kValueBytes;
  }
  __device__ std::uint32_t weights(int n) const {
    return base + kWeights + n % Traits::kWeightStages * Traits::kWeightBytes;
  }
  /// 4 words: bits of the keys of a tile that some query row gives weight.
  __device__ std::uint32_t needed(int n) const { return base + kNeeded + n % Traits::kWeightStages * 16; }

  /// Lanes arrive each for itself, not one for its warp: it costs nothing, and racecheck can follow it.
  __device__ void init_barriers(bool skip_values) const {
    for (int i = 0; i < Traits::kKeyStages; ++i) {
      barrier_init(key_full(i), 1);
      barrier_init(key_free(i), 32);
    }
    for (int i = 0; i < Traits::kValueStages; ++i) {
      barrier_init(value_full(i), 32);
      barrier_init(value_free(i), 32 * kSumWarps);
    }
    for (int i = 0; i < Traits::kWeightStages; ++i) {
      barrier_init(weight_full(i), 32);
      barrier_init(weight_free(i), 32 * (kSumWarps + (skip_values ? 1 : 0)));
    }
    for (int i = 0; i < Traits::kSumStages; ++i) {
      barrier_init(sums_full(i), 32 * kSumWarps);
      barrier_init(sums_free(i), 32);
    }
    barrier_init_fence();
  }

  __device__ std::uint32_t key_full(int n) const { return barrier(0, n % Traits::kKeyStages); }
  __device__ std::uint32_t key_free(int n) const {
    return barrier(Traits::kKeyStages, n % Traits::kKeyStages);
  }
  __device__ std::uint32_t value_full(int n) const {
    return barrier(2 * Traits::kKeyStages, n % Traits::kValueStages);
  }
  __device__ std::uint32_t value_free(int n) const {
    return barrier(2 * Traits::kKeyStages + Traits::kValueStages, n % Traits::kValueStages);
  }
  __device__ std::uint32_t weight_full(int n) const {
    return barrier(2 * (Traits::kKeyStages + Traits::kValueStages), n % Traits::kWeightStages);
  }
  __device__ std::uint32_t weight_free(int n) const {
    return barrier(2 * (Traits::kKeyStages + Traits::kValueStages) + Traits::kWeightStages,
                   n % Traits::kWeightStages);
  }

  /// The sum of the block's n-th unit: [rows, D] floats.
  __device__ std::uint32_t sums(int n) const {
    return base + kSums + n % Traits::kSumStages * Traits::kSumBytes;
  }
  __device__ std::uint32_t sums_full(int n) const {
    return barrier(kBarrierCount - 2 * Traits::kSumStages, n % Traits::kSumStages);
  }
  __device__ std::uint32_t sums_free(int n) const {
    return barrier(kBarrierCount - Traits::kSumStages, n % Traits::kSumStages);
  }
  __device__ void wait_for_sums(int n) const { barrier_wait(sums_full(n), n / Traits::kSumStages & 1); }
  __device__ void wait_for_free_sums(int n) const {
    barrier_wait(sums_free(n), (n / Traits::kSumStages & 1) ^ 1);
  }

  /// For one of several warps that take stages in turn: it may be a round ahead of the others, and the parity
  /// of a phase that has not begun is that of the one before the current one.
  __device__ void wait_for_keys(int n) const {
    wait_for_free_keys(n);
    barrier_wait(key_full(n), n / Traits::kKeyStages & 1);
  }
  __device__ void wait_for_values(int n) const { barrier_wait(value_full(n), n / Traits::kValueStages & 1); }
  __device__ void wait_for_weights(int n) const {
    barrier_wait(weight_full(n), n / Traits::kWeightStages & 1);
  }
  // The first round finds all stages free: the phase before a barrier's first counts as ended.
  __device__ void wait_for_free_keys(int n) const {
    barrier_wait(key_free(n), (n / Traits::kKeyStages & 1) ^ 1);
  }
  __device__ void wait_for_free_values(int n) const {
    barrier_wait(value_free(n), (n / Traits::kValueStages & 1) ^ 1);
  }
  __device__ void wait_for_free_weights(int n) const {
    barrier_wait(weight_free(n), (n / Traits::kWeightStages & 1) ^ 1);
  }

 private:
  __device__ std::uint32_t barrier(int first, int index) const {
    return base + kBarriers + 8 * (first + index);
  }
};

/// The units of a block: first, first + stride, ... All its warps walk through the same ones.
struct DecodeUnits {
  const DecodeArgs& args;
  int first;
  int stride;

  /// Calls visit(unit, first_key, last_key, stages before it).
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    int n = 0;
    for (int index = first; index < args.unit_count; index += stride) {
      const DecodeUnit unit = args.units[index];
      const int first_key = unit.chunk * kChunkKeys;
      const int last_key = min(unit.context, first_key + kChunkKeys);
      visit(unit, first_key, last_key, n);
      n += divide_up(last_key - first_key, kStageKeys);
    }
  }
};

/// A lane t of a quad gets 4 consecutive keys of 16: row c = 8 j + 2 t + e of an operand is key 4 t + 2 j +
/// e, or for the quad's last two lanes 4 t + 2 (1 - j) + e, so that the 8 rows of a matrix lie in different
/// banks.
__device__ inline bool decode_swaps(int lane) { return (lane & 2) != 0; }

/// Where lane i finds row i % 8 of matrix i / 8 of 16 keys and 16 columns. Columns 16 i: exclusive-or with i
/// % 4
/// << 5, and 64 columns further.
__device__ inline std::uint32_t decode_operand_row(int lane) {
  const int r = lane & 7;
  const int matrix = lane >> 3;
  const int key = 4 * (r >> 1) + 2 * ((matrix >> 1) ^ (r >> 2)) + (r & 1);
  return key * 128 + (((matrix & 1) ^ (key & 7)) << 4);
}

}  // namespace asynct::cuda
