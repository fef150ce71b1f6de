#pragma once

#include <cfloat>

#include "asynct/ops/token_selection/cuda/row.cuh"

// Draws by the mass of all tokens, where top-k and min-p leave none out, in two passes over the row: a
// histogram in float says in which buckets the borders can be, then weights in double say where they are.
namespace asynct::cuda {

template <class Element>
class MassDraw {
 public:
  __device__ MassDraw(const Row<Element>& row, double point)
      : row_(row), memory_(row.memory), top_p_(row.choice.top_p), point_(point) {}

  /// false where the tokens at the borders find no room, or a border is not where it was expected.
  __device__ bool draw() {
    fill_histogram();
    cluster_sync();
    join_histograms();
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
  // All of the histogram's room: the finer a bucket, the fewer tokens are at a border.
  static constexpr int kMassBuckets = kParts * kBuckets;
  static constexpr int kFinerThanBuckets = kMassBuckets / kBuckets;
  static constexpr int kNoMass = kFinerThanBuckets * kFar;  // from this bucket on
  static constexpr int kShare = kMassBuckets / kSelectThreads;
  static constexpr int kJoined = kMassBuckets / kSelectBlocks;  // buckets that a block adds up
  static_assert(kJoined == kSelectThreads && kShare % 4 == 0);
  static constexpr float kUnits = 32768;  // of a weight in its bucket: 65,536 tokens do not overflow
  /// More than the histogram's masses are off by, relative to what they should be: a weight in its bucket is
  /// a polynomial of degree 2 in units of 2^-15, a bucket's place a power by the fast unit, and sums are
  /// float.
  static constexpr float kError = 1e-4F;

  __device__ float mass_place(float logit) const { return row_.place_of(logit) * kFinerThanBuckets; }
  static __device__ int bucket_at(float place) { return min(__float2int_rz(place), kNoMass); }
  /// How much less a bucket weighs than the one before, as a power of e.
  __device__ float width() const {
    return static_cast<float>(row_.scale) / (row_.bucket_scale * kFinerThanBuckets);
  }

  /// A token adds its weight relative to the first of its bucket.
  __device__ void fill_histogram() {
    const float width = this->width();
    row_.each([&](float logit, int) {
      const float place = mass_place(logit);
      const int bucket = bucket_at(place);
      if (bucket >= kNoMass) return;
      const float behind = (place - static_cast<float>(bucket)) * width;
      const float weight = fmaf(behind, fmaf(behind, 0.5F, -1.F), 1.F);
      atomicAdd(&memory_.histogram[bucket], __float2uint_rn(weight * kUnits));
    });
  }

  /// Each block adds up some buckets of all blocks and leaves their mass, a float, in the first block's.
  __device__ void join_histograms() {
    const int bucket = row_.rank * kJoined + static_cast<int>(threadIdx.x);
    std::uint32_t parts[kSelectBlocks];
#pragma unroll
    for (int rank = 0; rank < kSelectBlocks; ++rank) parts[rank] = in_block(memory_.histogram, rank)[bucket];
    std::uint64_t sum = 0;
#pragma unroll
    for (const std::uint32_t part : parts) sum += part;
    const float first = exp2f(static_cast<float>(bucket) * width() * -1.442695041F);
    in_block(memory_.histogram, 0)[bucket] = __float_as_uint(static_cast<float>(sum) * first);
  }

  /// Where the sum of the masses up to a bucket reaches a target is found by the thread that has the bucket.
  struct Search {
    float before;        // of the thread's buckets
    float mass[kShare];  // of each

    /// Sets *bucket, and *reached to what is reached there.
    __device__ void find(float target, int* bucket, float* reached = nullptr) const {
      float up_to = before;
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        const bool is_short = up_to < target;
        up_to += mass[i];
        if (!is_short || up_to < target) continue;
        atomicMin(bucket, static_cast<int>(threadIdx.x) * kShare + i);
        if (reached != nullptr) *reached = up_to;
      }
    }
  };

  /// From the bucket where a border may be first to the one up to which it is for sure. First block only.
  __device__ void find_borders() {
    BorderScratch& scratch = memory_.border_scratch;
    Search search;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kShare; ++i)
      sum += search.mass[i] = __uint_as_float(memory_.histogram[static_cast<int>(threadIdx.x) * kShare + i]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float up_to = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += before;
    }
    if (lane == 31) scratch.sums[warp] = up_to;
    if (threadIdx.x < 4) scratch.found[threadIdx.x] = kNoMass - 1;
    __syncthreads();
    float total = 0;
    search.before = up_to - sum;
#pragma unroll
    for (int i = 0; i < kSelectWarps; ++i) {
      if (i == warp) search.before += total;
      total += scratch.sums[i];
    }
    const bool has_nucleus = top_p_ < 1;
    const float wanted = static_cast<float>(top_p_) * total;
    if (threadIdx.x == 0) scratch.kept = total;
    __syncthreads();
    if (has_nucleus) {
      search.find(wanted * (1 - kError), &scratch.found[0]);
      search.find(wanted * (1 + kError), &scratch.found[1], &scratch.kept);
    }
    __syncthreads();
    const auto point = static_cast<float>(point_);
    search.find(fmaxf(point * (has_nucleus ? wanted : total) * (1 - kError), FLT_MIN), &scratch.found[2]);
    search.find(fmaxf(point * scratch.kept * (1 + kError), FLT_MIN), &scratch.found[3]);
    __syncthreads();
    MassBorders borders = {.drawn = {scratch.found[2], scratch.found[3]}};
    if (has_nucleus) borders.nucleus = {scratch.found[0], scratch.found[1]};
    row_.tell(&SelectorMemory::borders, borders);
  }

  /// Adds up the weights of all, and lists the tokens at the borders: in the first block's list its own, in
  /// another's those that it then hands over.
  __device__ void weigh() {
    const MassBorders borders = memory_.borders;
    double before = 0, between = 0, rest = 0;
    row_.each([&](float logit, int token) {
      const int bucket = bucket_at(mass_place(logit));
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
    const auto add_up = [](double& sum) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    };
    add_up(before), add_up(between), add_up(rest);
    MassParts* const warps = memory_.border_scratch.warps;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = {before, between, rest, 0};
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const MassParts mine = threadIdx.x < kSelectWarps ? warps[threadIdx.x] : MassParts{};
    before = mine.before, between = mine.between, rest = mine.rest;
    add_up(before), add_up(between), add_up(rest);
    if (threadIdx.x == 0) in_block(memory_.parts, 0)[row_.rank] = {before, between, rest, memory_.listed};
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
      if (bucket_at(mass_place(key_logit(memory_.list[i]))) > last_drawn) mine = min(mine, i);
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
