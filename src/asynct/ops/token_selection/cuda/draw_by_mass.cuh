#pragma once

#include "asynct/ops/token_selection/cuda/row.cuh"

// Draws by the mass of all tokens, where top-k and min-p leave none out, in two passes over the row: a
// histogram in float says in which buckets the borders can be, then weights in double say where they are.
namespace asynct::cuda {

/// More than the histogram's masses are off by, relative to what they should be: a weight in its bucket is a
/// polynomial of degree 2, rounded to 2^-15, and its bucket's place a power by the fast unit.
inline constexpr double kHistogramError = 1e-4;

template <class Element>
class MassDraw {
 public:
  __device__ MassDraw(const Row<Element>& row, double point)
      : row_(row), memory_(row.memory), top_p_(row.choice.top_p), point_(point) {}

  /// false where the tokens at the borders find no room, or a border is not where it was expected.
  __device__ bool draw() {
    fill_histogram();
    cluster_sync();
    if (row_.rank == 0) find_borders();
    cluster_sync();
    weigh();
    cluster_sync();
    if (row_.rank == 0) row_.tell(&SelectorMemory::done, draw_from_candidates());
    cluster_sync();
    return memory_.done;
  }

 private:
  static constexpr float kUnits = 32768;  // of a weight in its bucket: 65,536 tokens do not overflow

  /// How much less than the bucket before a bucket weighs, as a power of e.
  __device__ float width() const { return static_cast<float>(row_.scale) / row_.bucket_scale; }

  /// A token adds its weight relative to the first of its bucket.
  __device__ void fill_histogram() {
    const float width = this->width();
    row_.each([&](float logit, int) {
      const float place = row_.place_of(logit);
      const int bucket = row_.bucket_at(place);
      if (bucket == kFar) return;
      const float behind = (place - static_cast<float>(bucket)) * width;
      const float weight = fmaf(behind, fmaf(behind, 0.5F, -1.F), 1.F);
      atomicAdd(&memory_.histogram[bucket], __float2uint_rn(weight * kUnits));
    });
  }

  /// First block only.
  __device__ void find_borders() {
    double mass[kBucketShare];
    row_.template gather_buckets<1>(mass);
    const int first = threadIdx.x * kBucketShare;
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kBucketShare; ++i)
      sum += mass[i] *= exp2f(static_cast<float>(first + i) * width() * -1.442695041F);
    const double before = block_sum_before(sum, row_.scratch);
    const double total = block_sum(sum, row_.scratch);
    // From the first bucket where it may be reached to the first where it is for sure.
    const auto range_of = [&](double least, double most) {
      int found = kBuckets, last = kBuckets;
      double up_to = before;
#pragma unroll
      for (int i = 0; i < kBucketShare; ++i) {
        up_to += mass[i];
        if (up_to >= least * (1 - kHistogramError)) found = min(found, first + i);
        if (up_to >= most * (1 + kHistogramError)) last = min(last, first + i);
      }
      const int from = block_first(found, kFar - 1, row_.scratch);
      return BucketRange{from, block_first(last, kFar - 1, row_.scratch)};
    };
    MassBorders borders;
    double least_kept = total, most_kept = total;
    if (top_p_ < 1) {
      borders.nucleus = range_of(top_p_ * total, top_p_ * total);
      least_kept = top_p_ * total;
      double of_nucleus = 0;
#pragma unroll
      for (int i = 0; i < kBucketShare; ++i)
        if (first + i <= borders.nucleus.last) of_nucleus += mass[i];
      most_kept = block_sum(of_nucleus, row_.scratch);
    }
    borders.drawn = range_of(point_ * least_kept, point_ * most_kept);
    row_.tell(&SelectorMemory::borders, borders);
  }

  /// Adds up the weights of all, and lists the tokens at the borders: in the first block's list its own, in
  /// another's those that it then hands over.
  __device__ void weigh() {
    const MassBorders borders = memory_.borders;
    double before = 0, between = 0, rest = 0;
    row_.each([&](float logit, int token) {
      const int bucket = row_.bucket_of(logit);
      const double one = row_.quick_weight(logit);
      if (bucket < borders.drawn.first)
        before += one;
      else if (bucket > borders.drawn.last && bucket < borders.nucleus.first)
        between += one;
      else
        rest += one;
      if (borders.drawn.has(bucket) || borders.nucleus.has(bucket)) {
        const int at = atomicAdd(&memory_.listed, 1);
        if (at < kListSize) memory_.list[at] = logit_key(logit, token);
      }
    });
    before = block_sum(before, row_.scratch);
    between = block_sum(between, row_.scratch);
    rest = block_sum(rest, row_.scratch);
    if (threadIdx.x == 0) {
      MassParts* const parts = in_block(memory_.parts, 0) + row_.rank;
      *parts = {before, between, rest, memory_.listed};
    }
  }

  /// Takes the other blocks' lists and returns what there is then; 0 where it finds no room. First block
  /// only.
  __device__ int gather_lists() {
    int starts[kSelectBlocks];
    int end = 0;
    for (int rank = 0; rank < kSelectBlocks; ++rank) {
      starts[rank] = end;
      end += memory_.parts[rank].listed;
    }
    if (end > kListSize) return 0;
    for (int i = starts[1] + static_cast<int>(threadIdx.x); i < end; i += kSelectThreads) {
      int rank = 1, start = starts[1];
#pragma unroll
      for (int other = 2; other < kSelectBlocks; ++other)
        if (i >= starts[other]) rank = other, start = starts[other];
      memory_.list[i] = in_block(memory_.list, rank)[i - start];
    }
    return end;
  }

  /// First block only.
  __device__ bool draw_from_candidates() {
    const int listed = gather_lists();
    if (listed == 0) return false;
    sort_list(memory_.list, listed);
    MassParts sum = {};
    for (const MassParts& part : memory_.parts)
      sum.before += part.before, sum.between += part.between, sum.rest += part.rest;
    const double total = sum.before + sum.between + sum.rest;
    // Between the drawn token's candidates and the nucleus' lies what is not listed.
    const int last_drawn = memory_.borders.drawn.last;
    int mine = listed;
    for (int i = threadIdx.x; i < listed; i += kSelectThreads)
      if (row_.bucket_of(key_logit(memory_.list[i])) > last_drawn) mine = min(mine, i);
    const int gap = block_first(mine, listed, row_.scratch);
    double up_to[kListShare];
    double of_list;
    row_.weigh_list(listed, sum.before, of_list, up_to);
#pragma unroll
    for (int i = 0; i < kListShare; ++i)
      if (static_cast<int>(threadIdx.x) * kListShare + i >= gap) up_to[i] += sum.between;

    int last = listed - 1;
    double kept = total;
    if (top_p_ < 1) {
      last = find(up_to, listed, gap, sum, [&](double mass) { return mass >= top_p_ * total; });
      if (last < 0) return false;
      kept = row_.mass_at(up_to, last);
    }
    const int drawn = find(up_to, listed, gap, sum, [&](double mass) { return mass > point_ * kept; });
    if (drawn < 0) return false;
    row_.choose(memory_.list[min(drawn, last)]);  // rounding never leads out of the nucleus
    return true;
  }

  /// Where in the list a mass is reached; -1 where it may be reached by a token that is not there.
  template <class Reached>
  __device__ int find(const double (&up_to)[kListShare], int listed, int gap, const MassParts& sum,
                      const Reached& reached) const {
    const int at = row_.first_in_list(up_to, listed, reached);
    if (at == listed) return -1;
    if (at != 0 && at != gap) return at;
    double mass_before = at == 0 ? sum.before : row_.mass_at(up_to, at - 1);
    if (at == gap) mass_before += sum.between;
    return reached(mass_before) ? -1 : at;
  }

  const Row<Element>& row_;
  SelectorMemory& memory_;
  double top_p_;
  double point_;
};

}  // namespace asynct::cuda
