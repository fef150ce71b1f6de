#pragma once

#include "asynct/ops/cuda/cluster.cuh"
#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/head/cuda/logit_key.cuh"
#include "asynct/ops/token_selection/cuda/candidates.cuh"
#include "asynct/ops/token_selection/cuda/selection.h"
#include "asynct/ops/token_selection/cuda/weight.cuh"

// Choice of a token from a row of logits, by a cluster of kSelectBlocks blocks (sm_90).
//
// Floor: each logit read once, 0.3 or 0.6 MB a row of 151,936, over the read rate.
//
// A block keeps its share of the row in shared memory; everything after the first pass happens there. What
// top-k, top-p and min-p keep, and the token that a point of its mass belongs to, are prefixes of the tokens
// in the order of their keys (logit_key.cuh). So:
//
// 1. The largest logit, over the cluster. At temperature 0 that is all.
// 2. The most probable tokens, at least top_k or kHead of them, go to the first block, which sorts them and
// adds
//    up their weights. A bound for them comes from a histogram of the largest logit of each thread: a thread
//    has one candidate or two, so counting all logits would find about the same. Meanwhile the other blocks
//    add up the weights of all tokens, if they are wanted.
// 3. When those do not reach the point, which flat distributions bring about, the mass of all tokens is
//    collected in buckets of their distance from the largest, the bucket that holds the wanted border goes to
//    the first block, and is cut again as long as it holds too many.
//
// Sums in buckets are integers in units of 2^-63, so that their order does not matter; all other sums have a
// fixed order. Tokens less probable than 2^-63 times the largest have no mass: a drawn number has 53 bits.
namespace asynct::cuda {

inline constexpr int kSelectBlocks = 8;
inline constexpr int kBuckets = 1024;
inline constexpr int kBucketShare = kBuckets / kSelectThreads;  // buckets of a thread, neighbours
inline constexpr int kFar = kBuckets - 1;                       // the bucket of what has no mass
inline constexpr float kBucketsPerE = 23.25F;                   // e^(-kFar / kBucketsPerE) is 2^-63.5
inline constexpr int kHead = 512;
inline constexpr int kParts = 4;  // of a mass: 16 bits each, which 65,536 tokens of a block cannot overflow

/// What a block has in shared memory, before its share of the row.
struct alignas(16) SelectorMemory {
  std::uint32_t histogram[kParts * kBuckets];  // part by part
  std::uint64_t list[kListSize];
  std::uint64_t largest[kSelectBlocks];  // written by each block of the cluster, as what follows
  std::uint64_t smallest[kSelectBlocks];
  double mass[kSelectBlocks];
  int listed;  // entries offered to the list, which may be more than it holds
  BlockScratch scratch;
  // Written by the first block.
  bool done;
  int bucket;
  double before;  // the mass, or count, of what comes before the bucket
  std::uint64_t key;
};

template <class Element>
class RowSelector {
 public:
  __device__ RowSelector(const TokenSelectionArgs& args, SelectorMemory& memory, Element* share)
      : args_(args), memory_(memory), scratch_(memory.scratch) {
    rank_ = blockIdx.x % kSelectBlocks;
    const std::int64_t row = blockIdx.x / kSelectBlocks;
    const int share_size = share_of(args.vocabulary);
    first_ = rank_ * share_size;
    count_ = max(0, min(share_size, args.vocabulary - first_));
    choice_ = args.choices[row];
    token_ = args.tokens + row;
    take_share(static_cast<const Element*>(args.logits) + row * args.row_stride + first_, share);
  }

  /// Tokens of a block: whole vectors.
  static __host__ __device__ int share_of(int vocabulary) {
    constexpr int kUnit = kSelectBlocks * kVectorSize<Element>;
    return (vocabulary + kUnit - 1) / kUnit * kVectorSize<Element>;
  }

  __device__ void run() {
    find_largest();
    if (!is_choice(largest_) || choice_.temperature == 0) {
      if (leads()) *token_ = is_choice(largest_) ? key_token(largest_) : -1;
      return;
    }
    max_ = key_logit(largest_);
    scale_ = 1.0 / choice_.temperature;
    bucket_scale_ = static_cast<float>(scale_) * kBucketsPerE;
    point_ = uniform(choice_.seed, choice_.step);
    if (!draw_from_head()) draw_from_all();
  }

 private:
  /// Tokens whose border is sought: in a bucket of distance, and between two keys.
  struct Band {
    int bucket = -1;  // -1: any
    std::uint64_t low = 0;
    std::uint64_t high = ~std::uint64_t{0};
  };

  __device__ bool leads() const { return rank_ == 0 && threadIdx.x == 0; }

  /// Copies the row's share; what lies beyond the vocabulary is never looked at.
  __device__ void take_share(const Element* from, Element* share) {
    constexpr int kVector = kVectorSize<Element>;
    const auto* const vectors = reinterpret_cast<const uint4*>(from);
    const int size = (count_ + kVector - 1) / kVector;
#pragma unroll 5
    for (int i = threadIdx.x; i < size; i += kSelectThreads)
      reinterpret_cast<uint4*>(share)[i] = __ldcs(vectors + i);
    logits_ = share;
    for (int i = threadIdx.x; i < kParts * kBuckets; i += kSelectThreads) memory_.histogram[i] = 0;
    if (threadIdx.x == 0) memory_.listed = 0;
    __syncthreads();
  }

  /// visit(logit, token) for the thread's part of the share.
  template <class Visit>
  __device__ void each(const Visit& visit) const {
    for (int i = threadIdx.x; i < count_; i += kSelectThreads)
      visit(static_cast<float>(logits_[i]), first_ + i);
  }

  __device__ void find_largest() {
    mine_ = kNoLogit;
    each([&](float logit, int token) { mine_ = max(mine_, logit_key(logit, token)); });
    const std::uint64_t block = block_max(mine_, scratch_);
    cluster_wait();
    if (threadIdx.x < kSelectBlocks) in_block(memory_.largest, threadIdx.x)[rank_] = block;
    cluster_sync();
    largest_ = kNoLogit;
    for (const std::uint64_t key : memory_.largest) largest_ = max(largest_, key);
  }

  /// Never smaller for a smaller logit. -infinity is far.
  __device__ int bucket_of(float logit) const {
    return min(__float2int_rz((max_ - logit) * bucket_scale_), kFar);
  }

  __device__ double weight(std::uint64_t key) const { return weight_of<true>(key_logit(key), max_, scale_); }

  /// The first block's buckets of a thread, summed over the cluster. Counts have one part.
  template <int kUsedParts>
  __device__ void gather_buckets(double (&mass)[kBucketShare]) {
    constexpr double kUnits[] = {kUsedParts == 1 ? 1 : 0x1p-63, 0x1p-47, 0x1p-31, 0x1p-15};
#pragma unroll
    for (double& sum : mass) sum = 0;
#pragma unroll
    for (int part = 0; part < kUsedParts; ++part) {
      std::uint64_t sums[kBucketShare] = {};
      for (int rank = 0; rank < kSelectBlocks; ++rank) {
        const std::uint32_t* const from = in_block(memory_.histogram, rank) + part * kBuckets;
#pragma unroll
        for (int i = 0; i < kBucketShare; ++i) sums[i] += from[threadIdx.x * kBucketShare + i];
      }
#pragma unroll
      for (int i = 0; i < kBucketShare; ++i) mass[i] += static_cast<double>(sums[i]) * kUnits[part];
    }
  }

  /// Adds the wanted tokens to the first block's list and counts them all, also those that find no room.
  /// Their order there is any.
  template <class Wanted>
  __device__ void collect(const Wanted& wanted) {
    int mine = 0;
    each([&](float logit, int token) { mine += wanted(logit, token) ? 1 : 0; });
    int at = static_cast<int>(block_sum_before(mine, scratch_));
    const int all = static_cast<int>(block_sum(mine, scratch_));
    __syncthreads();
    if (threadIdx.x == 0 && all > 0) scratch_.first = atomicAdd(in_block(&memory_.listed, 0), all);
    __syncthreads();
    at += scratch_.first;
    if (mine == 0) return;
    std::uint64_t* const list = in_block(memory_.list, 0);
    each([&](float logit, int token) {
      if (!wanted(logit, token)) return;
      if (at < kListSize) list[at] = logit_key(logit, token);
      ++at;
    });
  }

  // 2. From the most probable tokens.

  __device__ bool draw_from_head() {
    const int wanted = choice_.top_k > 0 ? choice_.top_k : kHead;
    const int mine = mine_ == kNoLogit ? kFar : bucket_of(key_logit(mine_));
    if (mine < kFar) atomicAdd(&memory_.histogram[mine], 1u);
    cluster_sync();
    const bool needs_total = choice_.top_k == 0 && (choice_.top_p < 1 || choice_.min_p == 0);
    if (rank_ == 0) bound_head(wanted);
    double mass = 0;
    if (needs_total) {
      each([&](float logit, int) { mass += weight_of<false>(logit, max_, scale_); });
      mass = block_sum(mass, scratch_);
    }
    if (threadIdx.x == 0) in_block(memory_.mass, 0)[rank_] = mass;
    cluster_sync();
    const int last = memory_.bucket;
    collect([&](float logit, int) { return bucket_of(logit) <= last; });
    cluster_sync();
    if (rank_ == 0) {
      double total = 0;
      for (const double part : memory_.mass) total += part;
      const bool whole = last == kFar - 1 && memory_.listed <= kListSize;
      const bool done = memory_.listed <= kListSize && try_list(total, whole);
      if (threadIdx.x < kSelectBlocks) in_block(&memory_, threadIdx.x)->done = done;
    }
    cluster_sync();
    return memory_.done;
  }

  /// Tells all blocks the last bucket up to which `wanted` threads have their largest logit.
  __device__ void bound_head(int wanted) {
    double threads[kBucketShare];
    gather_buckets<1>(threads);
    double sum = 0;
    for (const double count : threads) sum += count;
    double up_to = block_sum_before(sum, scratch_);
    int found = kFar - 1;
#pragma unroll
    for (int i = kBucketShare - 1; i >= 0; --i) {
      double before = up_to;
      for (int j = 0; j <= i; ++j) before += threads[j];
      if (before >= wanted) found = threadIdx.x * kBucketShare + i;
    }
    found = block_first(found, kFar - 1, scratch_);
    if (threadIdx.x < kSelectBlocks) in_block(&memory_, threadIdx.x)->bucket = found;
  }

  /// Draws from the list, the most probable tokens down to some bucket, `whole` when all that have mass.
  /// false: the point lies beyond. First block only.
  __device__ bool try_list(double total, bool whole) {
    int count = memory_.listed;
    sort_list(memory_.list, count);
    if (choice_.top_k > 0) {
      if (count < choice_.top_k && !whole) return false;
      count = min(count, choice_.top_k);
      whole = true;
    }
    double up_to[kListShare];
    const int kept_count = weigh_list(count, 0, choice_.top_k > 0 ? &total : nullptr, up_to);
    whole |= kept_count < count;
    double kept = total;
    int end = kept_count;
    if (choice_.top_p < 1) {
      const int border =
          first_in_list(up_to, kept_count, [&](double m) { return m >= choice_.top_p * total; });
      if (border == kept_count && !whole) return false;
      end = min(border + 1, kept_count);
      kept = mass_at(up_to, end - 1);
    } else if (choice_.min_p > 0) {
      if (!whole) return false;
      kept = mass_at(up_to, kept_count - 1);
    }
    int drawn = first_in_list(up_to, end, [&](double m) { return m > point_ * kept; });
    if (drawn == end && !whole && choice_.top_p == 1) return false;
    drawn = min(drawn, end - 1);
    if (threadIdx.x == 0) *token_ = key_token(memory_.list[drawn]);
    return true;
  }

  /// Sums of weights in the order of the sorted list, `before` included; returns the tokens that min-p keeps.
  __device__ int weigh_list(int count, double before, double* total, double (&up_to)[kListShare]) {
    double sum = 0;
    int dropped = count;
#pragma unroll
    for (int i = 0; i < kListShare; ++i) {
      const int at = threadIdx.x * kListShare + i;
      const double one = at < count ? weight(memory_.list[at]) : 0;
      if (at < count && one < choice_.min_p) dropped = min(dropped, at);
      up_to[i] = sum += one;
    }
    before += block_sum_before(sum, scratch_);
#pragma unroll
    for (double& mass : up_to) mass += before;
    if (total != nullptr) *total = block_sum(sum, scratch_);
    return block_first(dropped, count, scratch_);
  }

  template <class Reached>
  __device__ int first_in_list(const double (&up_to)[kListShare], int count, const Reached& reached) {
    int found = count;
#pragma unroll
    for (int i = kListShare - 1; i >= 0; --i) {
      const int at = threadIdx.x * kListShare + i;
      if (at < count && reached(up_to[i])) found = at;
    }
    return block_first(found, count, scratch_);
  }

  __device__ double mass_at(const double (&up_to)[kListShare], int at) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kListShare; ++i)
      if (threadIdx.x * kListShare + i == at) scratch_.sums[0] = up_to[i];
    __syncthreads();
    return scratch_.sums[0];
  }

  // 3. From all tokens.

  __device__ void draw_from_all() {
    floor_ = 0;
    if (choice_.top_k > 0) {
      Band all;
      count_band(all);
      floor_ = locate(all, true, [&](double count) { return count >= choice_.top_k; }).key;
    }
    double total = 0;
    each([&](float logit, int token) {
      if (logit_key(logit, token) >= floor_) total += weight_of<false>(logit, max_, scale_);
    });
    total = cluster_sum(block_sum(total, scratch_));
    Found nucleus = {0, total};
    if (choice_.top_p < 1) {
      weigh_band({});
      nucleus = locate({}, false, [&](double mass) { return mass >= choice_.top_p * total; });
    } else if (choice_.min_p > 0) {
      double kept = 0;
      each([&](float logit, int token) {
        const double one = weight_of<true>(logit, max_, scale_);
        if (logit_key(logit, token) >= floor_ && one >= choice_.min_p) kept += one;
      });
      nucleus.mass = cluster_sum(block_sum(kept, scratch_));
    }
    weigh_band({});
    const Found drawn = locate({}, false, [&](double mass) { return mass > point_ * nucleus.mass; });
    if (leads()) *token_ = key_token(max(drawn.key, nucleus.key));
  }

  struct Found {
    std::uint64_t key;
    double mass;  // of the tokens up to and with this one
  };

  /// The same for all blocks, in the order of ranks.
  __device__ double cluster_sum(double value) {
    if (threadIdx.x < kSelectBlocks) in_block(memory_.mass, threadIdx.x)[rank_] = value;
    cluster_sync();
    double sum = 0;
    for (const double part : memory_.mass) sum += part;
    cluster_sync();
    return sum;
  }

  __device__ bool is_in(const Band& band, float logit, std::uint64_t key) const {
    return key >= band.low && key <= band.high && key >= floor_ &&
           (band.bucket < 0 || bucket_of(logit) == band.bucket);
  }

  /// Bucket of a token of the band: by distance at first, then by key.
  __device__ int bucket_in(const Band& band, float logit, std::uint64_t key, int shift) const {
    return band.bucket < 0 ? bucket_of(logit) : static_cast<int>((band.high - key) >> shift);
  }

  __device__ void clear_histogram() {
    cluster_sync();
    for (int i = threadIdx.x; i < kParts * kBuckets; i += kSelectThreads) memory_.histogram[i] = 0;
    if (threadIdx.x == 0) memory_.listed = 0;
    cluster_sync();
  }

  /// Fills the histogram with the band's tokens, their number or their mass. What is far has no bucket.
  __device__ void count_band(const Band& band, int shift = 0) {
    clear_histogram();
    each([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      if (bucket_of(logit) < kFar && is_in(band, logit, key))
        atomicAdd(&memory_.histogram[bucket_in(band, logit, key, shift)], 1u);
    });
    cluster_sync();
  }
  __device__ void weigh_band(const Band& band, int shift = 0) {
    clear_histogram();
    each([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      if (bucket_of(logit) == kFar || !is_in(band, logit, key)) return;
      const double one = weight_of<true>(logit, max_, scale_);
      if (one < choice_.min_p) return;
      const auto units = static_cast<std::uint64_t>(one * 0x1p63);
      const int bucket = bucket_in(band, logit, key, shift);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        atomicAdd(&memory_.histogram[part * kBuckets + bucket],
                  static_cast<std::uint32_t>(units >> 16 * part) & 0xffffu);
    });
    cluster_sync();
  }

  /// The first token, in their order, up to which the mass (or `counts`: the number) is reached; the last
  /// that has mass where it never is, the key 0 for a number. The histogram holds the band.
  template <class Reached>
  __device__ Found locate(Band band, bool counts, const Reached& reached) {
    double before = 0;
    int shift = 0;
    for (;;) {
      if (rank_ == 0) find_bucket(counts, before, reached);
      cluster_sync();
      before = memory_.before;
      if (memory_.bucket < 0) return {0, before};
      if (band.bucket < 0) {
        band.bucket = memory_.bucket;
      } else {
        const std::uint64_t step = static_cast<std::uint64_t>(memory_.bucket) << shift;
        band.high -= step;
        const std::uint64_t span = (std::uint64_t{1} << shift) - 1;
        if (band.high > span) band.low = max(band.low, band.high - span);
      }
      if (list_band(band, counts, before, reached)) return {memory_.key, memory_.before};
      shift = cut(band);
      if (counts)
        count_band(band, shift);
      else
        weigh_band(band, shift);
    }
  }

  /// Tells all blocks the bucket where a sum is reached, or the last that is not empty, or -1.
  template <class Reached>
  __device__ void find_bucket(bool counts, double before, const Reached& reached) {
    double mass[kBucketShare];
    if (counts)
      gather_buckets<1>(mass);
    else
      gather_buckets<kParts>(mass);
    double sum = 0;
    for (const double one : mass) sum += one;
    double up_to = before + block_sum_before(sum, scratch_);
    double starts[kBucketShare];
    int found = kBuckets, last = kBuckets;
#pragma unroll
    for (int i = 0; i < kBucketShare; ++i) {
      const int bucket = threadIdx.x * kBucketShare + i;
      starts[i] = up_to;
      up_to += mass[i];
      if (mass[i] > 0 && found == kBuckets && reached(up_to)) found = bucket;
      if (mass[i] > 0) last = kBuckets - 1 - bucket;
    }
    found = block_first(found, kBuckets, scratch_);
    last = kBuckets - 1 - block_first(last, kBuckets, scratch_);
    if (found == kBuckets) found = counts ? -1 : last;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBucketShare; ++i)
      if (threadIdx.x * kBucketShare + i == found) scratch_.sums[0] = starts[i];
    __syncthreads();
    if (threadIdx.x < kSelectBlocks) {
      SelectorMemory* const to = in_block(&memory_, threadIdx.x);
      to->bucket = found;
      to->before = found < 0 ? before : scratch_.sums[0];
    }
  }

  /// Finds the border among the band's tokens if the list holds them all.
  template <class Reached>
  __device__ bool list_band(const Band& band, bool counts, double before, const Reached& reached) {
    collect([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      return is_in(band, logit, key) && (counts || weight(key) >= choice_.min_p);
    });
    cluster_sync();
    if (rank_ == 0) {
      const int count = memory_.listed;
      const bool fits = count <= kListSize;
      Found found = {0, before};
      if (fits) found = search_list(count, counts, before, reached);
      if (threadIdx.x < kSelectBlocks) {
        SelectorMemory* const to = in_block(&memory_, threadIdx.x);
        to->done = fits;
        to->key = found.key;
        to->before = found.mass;
      }
    }
    cluster_sync();
    return memory_.done;
  }

  template <class Reached>
  __device__ Found search_list(int count, bool counts, double before, const Reached& reached) {
    sort_list(memory_.list, count);
    double up_to[kListShare];
    weigh_list(count, before, nullptr, up_to);
    if (counts) {
#pragma unroll
      for (int i = 0; i < kListShare; ++i) up_to[i] = before + (threadIdx.x * kListShare + i + 1);
    }
    const int at = min(first_in_list(up_to, count, reached), count - 1);
    return {memory_.list[at], mass_at(up_to, at)};
  }

  /// Narrows a band that holds too many to their keys; returns the shift that makes at most kBuckets of them.
  __device__ int cut(Band& band) {
    std::uint64_t low = 0, high = 0;  // the first is inverted, so that both are maxima
    each([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      if (is_in(band, logit, key)) low = max(low, ~key), high = max(high, key);
    });
    low = block_max(low, scratch_);
    high = block_max(high, scratch_);
    if (threadIdx.x < kSelectBlocks) {
      in_block(memory_.smallest, threadIdx.x)[rank_] = low;
      in_block(memory_.largest, threadIdx.x)[rank_] = high;
    }
    cluster_sync();
    for (int rank = 0; rank < kSelectBlocks; ++rank) {
      low = max(low, memory_.smallest[rank]);
      high = max(high, memory_.largest[rank]);
    }
    band.low = max(band.low, ~low);
    band.high = min(band.high, high);
    const int bits = 64 - __clzll(static_cast<long long>(band.high - band.low));
    return max(0, bits - 10);
  }

  const TokenSelectionArgs& args_;
  SelectorMemory& memory_;
  BlockScratch& scratch_;
  int rank_;
  int first_, count_;  // tokens of this block
  TokenChoice choice_;
  std::int32_t* token_;
  const Element* logits_;  // of the share
  std::uint64_t mine_;     // the thread's largest
  std::uint64_t largest_;  // the row's
  float max_, bucket_scale_;
  double scale_, point_;
  std::uint64_t floor_ = 0;  // the last token of the top k
};

}  // namespace asynct::cuda
