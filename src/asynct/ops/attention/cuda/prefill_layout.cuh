#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/cuda/barrier.cuh"

// What the warps of a block of prefill share: sizes, places in shared memory, barriers, the walk over units.
namespace asynct::cuda {

/// kIsPlain: known to be form.plain; otherwise it may be.
template <class ElementType, int kHeadDim, int kPoolSize, bool kIsPlain>
struct PrefillTraits {
  using Element = ElementType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kPool = kPoolSize;
  static constexpr bool kPlain = kIsPlain;
  static constexpr bool kSoftmax = false;
  static constexpr int kRows = kPrefillRows;
  static constexpr int kGroups = kRows / 64;  // consumer warpgroups
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kKeys = 128;  // of a tile
  static constexpr int kChunkTiles = kChunkKeys / kKeys;
  static constexpr int kKeyStages = kDim == 64 ? 6 : 3;
  static constexpr int kValueStages = kDim == 64 ? 4 : 2;
  /// Steps of 16 keys that are weighed before the values of the tile before must have been added.
  static constexpr int kWaitStep = kDim == 64 ? kKeys / 16 - 1 : 1;
  static constexpr int kSums = kDim / 2;  // floats a thread of the sum of 64 rows

  static constexpr int kHalves = kDim / 64;
  static constexpr int kHalfBytes = kKeys * 128;  // 64 columns of a tile of queries, keys or values
  static constexpr int kTileBytes = kHalves * kHalfBytes;
  static constexpr int kSumBytes = kRows * kDim * 4;

  static_assert(kGroups == 2, "the warpgroups take turns");
  static_assert(kKeyStages < 7, "places of units");
  static_assert(kRows == kKeys, "queries come through the ring of keys");
  static_assert(kChunkKeys % kKeys == 0, "a tile belongs to one chunk");
};

/// The softmax twin: the same but for what becomes of scores.
template <class ElementType, int kHeadDim>
struct SoftmaxTraits : PrefillTraits<ElementType, kHeadDim, 1, true> {
  static constexpr bool kSoftmax = true;
};

template <class Traits>
struct PrefillLayout {
  static constexpr int kValues = Traits::kKeyStages * Traits::kTileBytes;
  static constexpr int kSums = kValues + Traits::kValueStages * Traits::kTileBytes;
  static constexpr int kUnits = kSums + Traits::kSumBytes;
  static constexpr int kBarriers = kUnits + 4 * 32;
  static constexpr int kSharedBytes =
      kBarriers + 8 * (2 * (Traits::kKeyStages + Traits::kValueStages) + 4) + 1024;  // alignment
  static_assert(kSharedBytes <= kMostSharedBytes, "shared memory of a block");

  std::uint32_t base;  // aligned to 1,024 bytes

  // Of the n-th tile of a block, counted over all units; each unit's queries are a tile of keys.
  __device__ std::uint32_t keys(int n) const { return base + n % Traits::kKeyStages * Traits::kTileBytes; }
  __device__ std::uint32_t values(int n) const {
    return base + kValues + n % Traits::kValueStages * Traits::kTileBytes;
  }
  /// Sums of a span's chunks; at a unit's end its output.
  __device__ std::uint32_t sums(int group) const { return base + kSums + group * 64 * Traits::kDim * 4; }

  /// The round's unit; one without keys ends the block's work. With four of them none is overwritten that a
  /// warp still reads: a unit comes when its queries' stage is free, and between two of a place lie more
  /// tiles of keys than the ring holds.
  __device__ std::uint32_t unit(int round) const { return base + kUnits + round % 4 * 32; }
  __device__ std::uint32_t unit_full(int round) const {
    return barrier(2 * (Traits::kKeyStages + Traits::kValueStages) + round % 4);
  }

  __device__ std::uint32_t key_full(int n) const { return barrier(n % Traits::kKeyStages); }
  __device__ std::uint32_t key_free(int n) const {
    return barrier(Traits::kKeyStages + n % Traits::kKeyStages);
  }
  __device__ std::uint32_t value_full(int n) const {
    return barrier(2 * Traits::kKeyStages + n % Traits::kValueStages);
  }
  __device__ std::uint32_t value_free(int n) const {
    return barrier(2 * Traits::kKeyStages + Traits::kValueStages + n % Traits::kValueStages);
  }

  __device__ void init_barriers() const {
    for (int i = 0; i < Traits::kKeyStages; ++i) {
      barrier_init(key_full(i), 2);
      barrier_init(key_free(i), 4 * Traits::kGroups);
    }
    for (int i = 0; i < Traits::kValueStages; ++i) {
      barrier_init(value_full(i), 2);
      barrier_init(value_free(i), 4 * Traits::kGroups);
    }
    for (int i = 0; i < 4; ++i) barrier_init(unit_full(i), 1);
    barrier_init_fence();
  }

  __device__ PrefillUnit wait_for_unit(int round) const {
    barrier_wait(unit_full(round), round / 4 & 1);
    return unit_of(round);
  }
  __device__ PrefillUnit unit_of(int round) const {
    PrefillUnit read;
    auto* const words = reinterpret_cast<uint4*>(&read);
    words[0] = load_shared<uint4>(unit(round));
    words[1] = load_shared<uint4>(unit(round) + 16);
    return read;
  }
  __device__ void wait_for_keys(int n) const { barrier_wait(key_full(n), n / Traits::kKeyStages & 1); }
  __device__ void wait_for_values(int n) const { barrier_wait(value_full(n), n / Traits::kValueStages & 1); }
  // The first round finds all stages free: the phase before a barrier's first counts as ended.
  __device__ void wait_for_free_keys(int n) const {
    barrier_wait(key_free(n), (n / Traits::kKeyStages & 1) ^ 1);
  }
  __device__ void wait_for_free_values(int n) const {
    barrier_wait(value_free(n), (n / Traits::kValueStages & 1) ^ 1);
  }

 private:
  __device__ std::uint32_t barrier(int index) const { return base + kBarriers + 8 * index; }
};

/// One of the blocks that take the units among themselves.
struct PrefillShare {
  int block;
  int blocks;
};

/// Of keys, up to the last that a unit sees.
template <class Traits>
__device__ inline int prefill_tiles(int last_key) {
  return divide_up(last_key, Traits::kKeys);
}

}  // namespace asynct::cuda
