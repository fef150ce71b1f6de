#pragma once

#include "asynct/ops/token_selection/cuda/row.cuh"

namespace asynct::cuda {

/// Finds borders among all tokens of a row, in their order: the token up to which a number or a mass is
/// reached. Every block of the cluster calls everything.
template <class Element>
class BorderSearch {
 public:
  explicit __device__ BorderSearch(const Row<Element>& row)
      : row_(row), memory_(row.memory), choice_(row.choice) {}

  struct Found {
    std::uint64_t key;
    double sum;  // of the tokens up to and with this one
  };

  /// From here on, tokens below `key` are not there.
  __device__ void cut_off(std::uint64_t key) { floor_ = key; }
  __device__ bool is_there(float logit, int token) const { return logit_key(logit, token) >= floor_; }

  /// The token that makes so many; key 0 where there are fewer that have mass.
  template <class Reached>
  __device__ Found find_count(const Reached& reached) {
    return find(true, reached);
  }
  /// The token up to which a mass, of what min-p keeps, is reached; the last where it never is.
  template <class Reached>
  __device__ Found find_mass(const Reached& reached) {
    return find(false, reached);
  }

 private:
  /// Tokens among which the border is: those of a bucket of distance, and between two keys.
  struct Band {
    int bucket = -1;  // -1: any but the far one
    std::uint64_t low = 0;
    std::uint64_t high = ~std::uint64_t{0};
    int shift = 0;  // distance of keys, from high down, to bucket
  };

  __device__ bool is_in(const Band& band, float logit, std::uint64_t key) const {
    const int bucket = row_.bucket_of(logit);
    return key >= band.low && key <= band.high && key >= floor_ &&
           (band.bucket < 0 ? bucket < kFar : bucket == band.bucket);
  }

  template <class Reached>
  __device__ Found find(bool counts, const Reached& reached) {
    Band band;
    double before = 0;
    for (;;) {
      if (band.bucket >= 0 || counts || !holds_mass_)
        fill_histogram(band, counts);
      else
        clear_list();
      holds_mass_ = band.bucket < 0 && !counts;
      if (row_.rank == 0) find_bucket(counts, before, reached);
      cluster_sync();
      before = memory_.before;
      if (memory_.bucket < 0) return {0, before};
      narrow(band, memory_.bucket);
      if (search_list(band, counts, before, reached)) return {memory_.key, memory_.before};
      cut(band);
    }
  }

  __device__ void clear_list() {
    if (threadIdx.x == 0) memory_.listed = 0;
    cluster_sync();
  }

  /// The band's tokens, their number or their mass, by distance at first, then by key.
  __device__ void fill_histogram(const Band& band, bool counts) {
    cluster_sync();
    for (int i = threadIdx.x; i < kParts * kBuckets; i += kSelectThreads) memory_.histogram[i] = 0;
    clear_list();
    row_.each([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      if (!is_in(band, logit, key)) return;
      const int bucket =
          band.bucket < 0 ? row_.bucket_of(logit) : static_cast<int>((band.high - key) >> band.shift);
      if (counts) {
        atomicAdd(&memory_.histogram[bucket], 1u);
        return;
      }
      const double one = row_.weight(key);
      if (one < choice_.min_p) return;
      const auto units = static_cast<std::uint64_t>(one * 0x1p63);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        atomicAdd(&memory_.histogram[part * kBuckets + bucket],
                  static_cast<std::uint32_t>(units >> 16 * part) & 0xffffu);
    });
    cluster_sync();
  }

  /// Tells all blocks the bucket where the sum is reached, and what comes before it; for a mass that is never
  /// reached the last that has any, for a number -1. First block only.
  template <class Reached>
  __device__ void find_bucket(bool counts, double before, const Reached& reached) {
    double mass[kBucketShare];
    if (counts)
      row_.template gather_buckets<1>(mass);
    else
      row_.template gather_buckets<kParts>(mass);
    double sum = 0;
    for (const double one : mass) sum += one;
    double up_to = before + block_sum_before(sum, row_.scratch);
    double starts[kBucketShare];
    int found = kBuckets, last = kBuckets;
#pragma unroll
    for (int i = 0; i < kBucketShare; ++i) {
      const int bucket = threadIdx.x * kBucketShare + i;
      starts[i] = up_to;
      up_to += mass[i];
      if (mass[i] > 0 && reached(up_to)) found = min(found, bucket);
      if (mass[i] > 0) last = kBuckets - 1 - bucket;
    }
    found = block_first(found, kBuckets, row_.scratch);
    last = kBuckets - 1 - block_first(last, kBuckets, row_.scratch);
    if (found == kBuckets) found = counts ? -1 : last;
    __syncthreads();
    if (threadIdx.x == 0) row_.scratch.sums[0] = before;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBucketShare; ++i)
      if (static_cast<int>(threadIdx.x) * kBucketShare + i == found) row_.scratch.sums[0] = starts[i];
    __syncthreads();
    row_.tell(&SelectorMemory::bucket, found);
    row_.tell(&SelectorMemory::before, row_.scratch.sums[0]);
  }

  static __device__ void narrow(Band& band, int bucket) {
    if (band.bucket < 0) {
      band.bucket = bucket;
      return;
    }
    band.high -= static_cast<std::uint64_t>(bucket) << band.shift;
    const std::uint64_t span = (std::uint64_t{1} << band.shift) - 1;
    if (band.high > span) band.low = max(band.low, band.high - span);
  }

  /// Finds the border among the band's tokens, if the list holds them all.
  template <class Reached>
  __device__ bool search_list(const Band& band, bool counts, double before, const Reached& reached) {
    row_.collect([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      return is_in(band, logit, key) && (counts || row_.weight(key) >= choice_.min_p);
    });
    cluster_sync();
    if (row_.rank == 0) {
      const int listed = memory_.listed;
      if (listed <= kListSize) {
        sort_list(memory_.list, listed);
        double up_to[kListShare];
        double total;
        row_.weigh_list(listed, before, total, up_to);
        if (counts) {
#pragma unroll
          for (int i = 0; i < kListShare; ++i) up_to[i] = before + (threadIdx.x * kListShare + i + 1);
        }
        const int at = min(row_.first_in_list(up_to, listed, reached), listed - 1);
        row_.tell(&SelectorMemory::key, memory_.list[at]);
        row_.tell(&SelectorMemory::before, row_.mass_at(up_to, at));
      }
      row_.tell(&SelectorMemory::done, listed <= kListSize);
    }
    cluster_sync();
    return memory_.done;
  }

  /// Narrows a band that holds too many to their keys, and these to buckets.
  __device__ void cut(Band& band) {
    std::uint64_t low = 0, high = 0;  // the first is inverted, so that both are maxima
    row_.each([&](float logit, int token) {
      const std::uint64_t key = logit_key(logit, token);
      if (is_in(band, logit, key)) low = max(low, ~key), high = max(high, key);
    });
    low = block_max(low, row_.scratch);
    high = block_max(high, row_.scratch);
    if (threadIdx.x < kSelectBlocks) {
      in_block(memory_.smallest, threadIdx.x)[row_.rank] = low;
      in_block(memory_.largest, threadIdx.x)[row_.rank] = high;
    }
    cluster_sync();
    for (int rank = 0; rank < kSelectBlocks; ++rank) {
      low = max(low, memory_.smallest[rank]);
      high = max(high, memory_.largest[rank]);
    }
    band.low = max(band.low, ~low);
    band.high = min(band.high, high);
    constexpr int kBucketBits = 10;
    static_assert(kBuckets == 1 << kBucketBits);
    const int bits = 64 - __clzll(static_cast<long long>(band.high - band.low));
    band.shift = max(0, bits - kBucketBits);
  }

  const Row<Element>& row_;
  SelectorMemory& memory_;
  const TokenChoice& choice_;
  std::uint64_t floor_ = 0;
  bool holds_mass_ = false;  // the histogram is that of all tokens' mass
};

/// Draws from all tokens.
template <class Element>
__device__ void draw_from_all(const Row<Element>& row, double point) {
  using Found = typename BorderSearch<Element>::Found;
  const TokenChoice& choice = row.choice;
  BorderSearch<Element> search(row);
  if (choice.top_k > 0)
    search.cut_off(search.find_count([&](double count) { return count >= choice.top_k; }).key);
  const bool sums_kept = choice.top_p == 1 && choice.min_p > 0;  // nobody asks for the mass of all
  double total = 0;
  row.each([&](float logit, int token) {
    if (!search.is_there(logit, token)) return;
    const double one = sums_kept ? row.weight(logit_key(logit, token)) : row.quick_weight(logit);
    if (!sums_kept || one >= choice.min_p) total += one;
  });
  total = row.cluster_sum(block_sum(total, row.scratch));
  Found nucleus = {0, total};
  if (choice.top_p < 1) nucleus = search.find_mass([&](double mass) { return mass >= choice.top_p * total; });
  const Found drawn = search.find_mass([&](double mass) { return mass > point * nucleus.sum; });
  row.choose(max(drawn.key, nucleus.key));  // rounding never leads out of the nucleus
}

}  // namespace asynct::cuda
