#pragma once

#include "asynct/ops/cuda/cluster.cuh"
#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/head/cuda/logit_key.cuh"
#include "asynct/ops/token_selection/cuda/candidates.cuh"
#include "asynct/ops/token_selection/cuda/selection.h"
#include "asynct/ops/token_selection/cuda/weight.cuh"

// A row of logits in the shared memory of a cluster's blocks, and what all steps of a choice do with it.
namespace asynct::cuda {

inline constexpr int kSelectBlocks = 8;
inline constexpr int kBuckets = 1024;
inline constexpr int kBucketShare = kBuckets / kSelectThreads;  // buckets of a thread, neighbours
inline constexpr int kFar = kBuckets - 1;                       // the bucket of what has no mass
inline constexpr float kBucketsPerE = 23.25F;                   // e^(-kFar / kBucketsPerE) is 2^-63.5
inline constexpr int kParts = 4;  // of a mass: 16 bits each, which 65,536 tokens of a block cannot overflow

static_assert(kMostTokens <= kSelectBlocks * 65536);

/// Buckets in which a border can be; first > last: in none.
struct BucketRange {
  int first = 1 << 30;
  int last = -1;

  __device__ bool has(int bucket) const { return bucket >= first && bucket <= last; }
};

/// The borders of a row. The drawn token's is never behind the nucleus'.
struct MassBorders {
  BucketRange drawn;
  BucketRange nucleus;  // none: top-p is 1
};

/// Masses of a block's tokens: before those at the drawn token's border, between them and the nucleus', and
/// of all others, those at the borders included.
struct MassParts {
  double before, between, rest;
  int listed;  // tokens at the borders
};

struct BorderScratch {
  float sums[kSelectWarps];
  float kept;
  int found[4];
  MassParts warps[kSelectWarps];
};

/// What a block has in shared memory, before its share of the row.
struct alignas(16) SelectorMemory {
  std::uint32_t histogram[kParts * kBuckets];  // part by part
  std::uint64_t list[kListSize];
  std::uint64_t largest[kSelectBlocks];  // written by each block of the cluster, as are the next two
  std::uint64_t smallest[kSelectBlocks];
  double mass[kSelectBlocks];
  MassParts parts[kSelectBlocks];
  int listed;  // entries meant for the list, which may be more than it holds
  BlockScratch scratch;
  BorderScratch border_scratch;
  // Written by the first block.
  bool done;
  int bucket;
  double before;  // the mass, or number, of what comes before the bucket
  std::uint64_t key;
};

/// Of a thread's logits.
struct Extremes {
  float most = -INFINITY;  // NaN where one is
  float least = INFINITY;  // but -infinity

  __device__ void see(float logit) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(logit));
    least = fminf(least, logit == -INFINITY ? INFINITY : logit);
  }
};

/// One block's view of a row.
template <class Element>
struct Row {
  SelectorMemory& memory;
  BlockScratch& scratch;
  TokenChoice choice;
  std::int32_t* token;    // where the choice goes
  const Element* logits;  // the block's share of the row
  int rank;               // of the block in its cluster
  int first, count;       // tokens of the share
  std::uint64_t mine;     // the largest key of the thread's tokens; its token is known at temperature 0 only
  std::uint64_t largest;  // and of the row
  float max;              // its logit
  float smallest;         // of the row but -infinity; not known at temperature 0
  float bucket_scale;
  double scale;

  /// Copies the block's share; what lies beyond the vocabulary is never looked at.
  __device__ Row(const TokenSelectionArgs& args, SelectorMemory& memory, Element* share)
      : memory(memory), scratch(memory.scratch), logits(share) {
    constexpr int kVector = kVectorSize<Element>;
    rank = blockIdx.x % kSelectBlocks;
    const std::int64_t row = blockIdx.x / kSelectBlocks;
    first = rank * share_of(args.vocabulary);
    count = ::max(0, min(share_of(args.vocabulary), args.vocabulary - first));
    choice = args.choices[row];
    token = args.tokens + row;
    const auto* const from = reinterpret_cast<const uint4*>(static_cast<const Element*>(args.logits) +
                                                            row * args.row_stride + first);
    const int vectors = (count + kVector - 1) / kVector;
    Extremes seen;
#pragma unroll 5
    for (int i = threadIdx.x; i < vectors; i += kSelectThreads) {
      const uint4 vector = __ldcs(from + i);
      reinterpret_cast<uint4*>(share)[i] = vector;
      if (choice.temperature == 0) continue;
      const auto* const elements = reinterpret_cast<const Element*>(&vector);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        if (i * kVector + j < count) seen.see(static_cast<float>(elements[j]));
    }
    for (int i = threadIdx.x; i < kParts * kBuckets; i += kSelectThreads) memory.histogram[i] = 0;
    if (threadIdx.x == 0) memory.listed = 0;
    __syncthreads();
    find_largest(seen);
    max = key_logit(largest);
    scale = 1.0 / choice.temperature;
    bucket_scale = static_cast<float>(scale) * kBucketsPerE;
    // Where all have mass, buckets can be smaller.
    const float finest = (kFar - 1) / (max - smallest);
    if (isfinite(finest)) bucket_scale = fmaxf(bucket_scale, finest);
  }

  /// Tokens of a block: whole vectors.
  static __host__ __device__ int share_of(int vocabulary) {
    constexpr int kUnit = kSelectBlocks * kVectorSize<Element>;
    return (vocabulary + kUnit - 1) / kUnit * kVectorSize<Element>;
  }

  /// visit(logit, token) for the thread's part of the share.
  template <class Visit>
  __device__ void each(const Visit& visit) const {
    for (int i = threadIdx.x; i < count; i += kSelectThreads) visit(static_cast<float>(logits[i]), first + i);
  }

  __device__ void choose(std::uint64_t key) const {
    if (rank == 0 && threadIdx.x == 0) *token = is_choice(key) ? key_token(key) : -1;
  }

  /// A token's distance from the largest, in buckets. Never smaller for a smaller logit; -infinity is far.
  __device__ float place_of(float logit) const { return (max - logit) * bucket_scale; }
  __device__ int bucket_at(float place) const { return min(__float2int_rz(place), kFar); }
  __device__ int bucket_of(float logit) const { return bucket_at(place_of(logit)); }

  __device__ double weight(std::uint64_t key) const { return weight_of<true>(key_logit(key), max, scale); }

  /// For sums over many: see weight_of.
  __device__ double quick_weight(float logit) const { return weight_of<false>(logit, max, scale); }

  /// Sets memory.*field in all blocks; the first block's threads call it.
  template <class T>
  __device__ void tell(T SelectorMemory::*field, T value) const {
    if (threadIdx.x < kSelectBlocks) in_block(&memory, threadIdx.x)->*field = value;
  }

  /// The sum over the blocks, the same for all, in the order of ranks.
  __device__ double cluster_sum(double value) const {
    if (threadIdx.x < kSelectBlocks) in_block(memory.mass, threadIdx.x)[rank] = value;
    cluster_sync();
    double sum = 0;
    for (const double part : memory.mass) sum += part;
    cluster_sync();
    return sum;
  }

  /// Adds the wanted tokens to the first block's list and counts them all, also those that find no room.
  /// Their order there is any.
  template <class Wanted>
  __device__ void collect(const Wanted& wanted) const {
    int mine = 0;
    each([&](float logit, int token) { mine += wanted(logit, token) ? 1 : 0; });
    int at = static_cast<int>(block_sum_before(mine, scratch));
    const int all = static_cast<int>(block_sum(mine, scratch));
    __syncthreads();
    if (threadIdx.x == 0 && all > 0) scratch.first = atomicAdd(in_block(&memory.listed, 0), all);
    __syncthreads();
    if (mine == 0) return;
    at += scratch.first;
    std::uint64_t* const list = in_block(memory.list, 0);
    each([&](float logit, int token) {
      if (!wanted(logit, token)) return;
      if (at < kListSize) list[at] = logit_key(logit, token);
      ++at;
    });
  }

  /// A thread's buckets, summed over the cluster: masses in kParts parts, or numbers in one. First block
  /// only.
  template <int kUsedParts>
  __device__ void gather_buckets(double (&mass)[kBucketShare]) const {
    constexpr double kUnits[] = {kUsedParts == 1 ? 1 : 0x1p-63, 0x1p-47, 0x1p-31, 0x1p-15};
#pragma unroll
    for (double& sum : mass) sum = 0;
#pragma unroll
    for (int part = 0; part < kUsedParts; ++part) {
      std::uint64_t sums[kBucketShare] = {};
      for (int other = 0; other < kSelectBlocks; ++other) {
        const std::uint32_t* const from = in_block(memory.histogram, other) + part * kBuckets;
#pragma unroll
        for (int i = 0; i < kBucketShare; ++i) sums[i] += from[threadIdx.x * kBucketShare + i];
      }
#pragma unroll
      for (int i = 0; i < kBucketShare; ++i) mass[i] += static_cast<double>(sums[i]) * kUnits[part];
    }
  }

  /// Sums of weights in the order of the first block's sorted list, `before` included, and in `total` of all;
  /// returns the tokens that min-p keeps.
  __device__ int weigh_list(int listed, double before, double& total, double (&up_to)[kListShare]) const {
    double sum = 0;
    int dropped = listed;
#pragma unroll
    for (int i = 0; i < kListShare; ++i) {
      const int at = threadIdx.x * kListShare + i;
      const double one = at < listed ? weight(memory.list[at]) : 0;
      if (at < listed && one < choice.min_p) dropped = min(dropped, at);
      up_to[i] = sum += one;
    }
    before += block_sum_before(sum, scratch);
#pragma unroll
    for (double& mass : up_to) mass += before;
    total = block_sum(sum, scratch);
    return block_first(dropped, listed, scratch);
  }

  /// The first entry of the list where a sum is reached; `listed` where none is.
  template <class Reached>
  __device__ int first_in_list(const double (&up_to)[kListShare], int listed, const Reached& reached) const {
    int found = listed;
#pragma unroll
    for (int i = kListShare - 1; i >= 0; --i) {
      const int at = threadIdx.x * kListShare + i;
      if (at < listed && reached(up_to[i])) found = at;
    }
    return block_first(found, listed, scratch);
  }

  __device__ double mass_at(const double (&up_to)[kListShare], int at) const {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kListShare; ++i)
      if (threadIdx.x * kListShare + i == at) scratch.sums[0] = up_to[i];
    __syncthreads();
    return scratch.sums[0];
  }

 private:
  /// Two numbers of 32 bits whose maxima are wanted, in one word.
  static __device__ std::uint64_t max_of_halves(std::uint64_t a, std::uint64_t b) {
    return ::max(a >> 32, b >> 32) << 32 | ::max(a & 0xffffffffu, b & 0xffffffffu);
  }

  __device__ void find_largest(const Extremes& seen) {
    const bool is_drawn = choice.temperature != 0;
    std::uint64_t block;
    if (!is_drawn) {
      mine = kNoLogit;
      each([&](float logit, int token) { mine = ::max(mine, logit_key(logit, token)); });
      block = block_max(mine, scratch);
    } else {  // which token it is does not matter, but how far the smallest is
      mine = logit_key(seen.most, 0);
      const std::uint32_t high = __reduce_max_sync(~0u, static_cast<std::uint32_t>(mine >> 32));
      const std::uint32_t low =
          __reduce_max_sync(~0u, static_cast<std::uint32_t>(logit_key(-seen.least, 0) >> 32));
      if (threadIdx.x % 32 == 0)
        scratch.keys[threadIdx.x / 32] = static_cast<std::uint64_t>(high) << 32 | low;
      __syncthreads();
      block = 0;
      for (const std::uint64_t warp : scratch.keys) block = max_of_halves(block, warp);
    }
    cluster_wait();
    if (threadIdx.x < kSelectBlocks) in_block(memory.largest, threadIdx.x)[rank] = block;
    cluster_sync();
    largest = 0;
    for (const std::uint64_t other : memory.largest)
      largest = is_drawn ? max_of_halves(largest, other) : ::max(largest, other);
    smallest = -key_logit(largest << 32);
  }
};

}  // namespace asynct::cuda
