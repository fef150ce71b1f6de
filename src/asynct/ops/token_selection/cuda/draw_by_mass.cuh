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
    const MassBorders borders = find_borders();
    weigh(borders);
    cluster_sync();
    if (row_.rank == 0) row_.tell(&SelectorMemory::done, draw_from_candidates(borders));
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

  /// Each block adds up some buckets of all blocks and leaves their mass, a float, in all of them.
  __device__ void join_histograms() {
    const int bucket = row_.rank * kJoined + static_cast<int>(threadIdx.x);
    std::uint32_t parts[kSelectBlocks];
#pragma unroll
    for (int rank = 0; rank < kSelectBlocks; ++rank) parts[rank] = in_block(memory_.histogram, rank)[bucket];
    std::uint64_t sum = 0;
#pragma unroll
    for (const std::uint32_t part : parts) sum += part;
    const float first = exp2f(static_cast<float>(bucket) * width() * -1.442695041F);
    const std::uint32_t mass = __float_as_uint(static_cast<float>(sum) * first);
#pragma unroll
    for (int rank = 0; rank < kSelectBlocks; ++rank) in_block(memory_.histogram, rank)[bucket] = mass;
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

  /// From the bucket where a border may be first to the one up to which it is for sure.
  __device__ MassBorders find_borders() {
    BorderScratch& scratch = memory_.border_scratch;
    Search search;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kShare; ++i)
      sum += search.mass[i] = __uint_as_float(memory_.histogram[static_cast<int>(threadIdx.x) * kShare + i]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float up_to = warp_sum_up_to(sum);
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
    return borders;
  }

  /// Adds up the weights of all, and lists the tokens at the borders: in the first block's list its own, in
  /// another's those that it then hands over.
  __device__ void weigh(const MassBorders& borders) {
    // A bucket's tokens are those from its place to the next one's.
    const auto drawn = static_cast<float>(borders.drawn.first);
    const auto drawn_end = static_cast<float>(borders.drawn.last + 1);
    const auto nucleus = static_cast<float>(borders.nucleus.first);
    const auto nucleus_end = static_cast<float>(borders.nucleus.last + 1);
    double before = 0, between = 0, rest = 0;
    row_.each([&](float logit, int token) {
      const float place = mass_place(logit);
      const double one = row_.quick_weight(logit);
      if (place < drawn)
        before += one;
      else if (place >= drawn_end && place < nucleus)
        between += one;
      else
        rest += one;
      if ((place >= drawn && place < drawn_end) || (place >= nucleus && place < nucleus_end)) {
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
  __device__ bool draw_from_candidates(const MassBorders& borders) {
    const int listed = gather_lists();
    if (listed == 0) return false;
    sort_list(memory_.list, listed);
    MassParts sum = {};
    for (const MassParts& part : memory_.parts)
      sum.before += part.before, sum.between += part.between, sum.rest += part.rest;
    const double total = sum.before + sum.between + sum.rest;
    double up_to[kListShare];
    double mine = 0;
#pragma unroll
    for (int i = 0; i < kListShare; ++i) {
      const int at = static_cast<int>(threadIdx.x) * kListShare + i;
      up_to[i] = mine += at < listed ? row_.weight(memory_.list[at]) : 0;
    }
    // Between the drawn token's candidates and the nucleus' lies what is not listed.
    int gap = 0;
    for (int begin = 0; begin < listed; begin += kSelectThreads) {
      const int at = begin + static_cast<int>(threadIdx.x);
      gap += __syncthreads_count(at < listed &&
                                 bucket_at(mass_place(key_logit(memory_.list[at]))) <= borders.drawn.last);
    }
    const double list_before = sum.before + block_sum_before(mine, row_.scratch);
#pragma unroll
    for (int i = 0; i < kListShare; ++i)
      up_to[i] += list_before + (static_cast<int>(threadIdx.x) * kListShare + i >= gap ? sum.between : 0);

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
