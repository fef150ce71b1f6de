#pragma once

#include "asynct/ops/attention/tile_kernel.h"

// From scores to weights of the keys of one span, for one query, in place. `visible`: keys of the span that
// the query may see; the others get weight 0 whatever their score is (it may be NaN: such keys do not exist).
namespace asynct::attention {
namespace {

/// scores[-kHalo .. -1] are those of the keys before. Returns the keys whose weight is not zero, as bits.
template <int kPool, bool kRelu>
std::uint64_t pooled_weights(float* scores, int vecs, std::int64_t visible, const HeadFactors& head) {
  const auto history = [](Vec s) { return kRelu ? max(Vec::zero(), s) : s; };
  const Vec zero = Vec::zero();
  std::uint64_t needed = 0;
  // Backwards, because a vector of weights overwrites scores that only later keys pool.
  for (int v = vecs - 1; v >= 0; --v) {
    float* const at = scores + v * Vec::kLanes;
    const Vec score = Vec::load(at);
    Vec pooled = history(score);
    for (int lag = 1; lag < kPool; ++lag) pooled = pooled + history(Vec::load(at - lag));
    const Vec line = Vec::fma(Vec::all(head.slope), score, Vec::all(head.bias));
    const Vec inhibited = Vec::fma(Vec::all(-head.sigma), pooled, line);
    const Vec clamped = min(Vec::all(1), max(zero, inhibited));
    const Vec weight = blend_first(visible - v * Vec::kLanes, Vec::all(head.gain) * clamped, zero);
    weight.store(at);
    needed |= std::uint64_t{nonzero_lanes(weight)} << (v * Vec::kLanes);
  }
  return needed;
}

using PooledWeights = std::uint64_t (*)(float*, int, std::int64_t, const HeadFactors&);

template <bool kRelu>
PooledWeights pooled_weights_of(int pool_size) {
  switch (pool_size) {
    case 1:
      return pooled_weights<1, kRelu>;
    case 2:
      return pooled_weights<2, kRelu>;
    case 3:
      return pooled_weights<3, kRelu>;
    default:
      return pooled_weights<5, kRelu>;
  }
}

inline float exp_of_nonpositive(float x) {
  float lanes[Vec::kLanes];
  exp_of_nonpositive(Vec::all(x)).store(lanes);
  return lanes[0];
}

constexpr float kNoScore = -__builtin_inff();

/// exp(score - largest) for the visible keys (at least one), after raising `largest` to theirs. `rescale` is
/// what earlier sums must be multiplied by; `total` has been already.
inline std::uint64_t softmax_weights(float* scores, int vecs, std::int64_t visible, float& largest,
                                     float& total, float& rescale) {
  Vec most[kGroupVecs];
  for (Vec& m : most) m = Vec::all(kNoScore);
  for (int v = 0; v < vecs; ++v) {
    const Vec score =
        blend_first(visible - v * Vec::kLanes, Vec::load(scores + v * Vec::kLanes), Vec::all(kNoScore));
    most[v % kGroupVecs] = max(most[v % kGroupVecs], score);
  }
  float lanes[kGroupKeys];
  for (int v = 0; v < kGroupVecs; ++v) most[v].store(lanes + v * Vec::kLanes);
  const float span_largest = largest_of_16(lanes);
  const float raised = span_largest > largest ? span_largest : largest;
  rescale = total == 0 ? 1.0F : exp_of_nonpositive(largest - raised);
  largest = raised;

  Vec sums[kGroupVecs];
  for (Vec& s : sums) s = Vec::zero();
  std::uint64_t needed = 0;
  for (int v = 0; v < vecs; ++v) {
    float* const at = scores + v * Vec::kLanes;
    const Vec weight = blend_first(visible - v * Vec::kLanes,
                                   exp_of_nonpositive(Vec::load(at) - Vec::all(raised)), Vec::zero());
    sums[v % kGroupVecs] = sums[v % kGroupVecs] + weight;
    weight.store(at);
    needed |= std::uint64_t{nonzero_lanes(weight)} << (v * Vec::kLanes);
  }
  for (int v = 0; v < kGroupVecs; ++v) sums[v].store(lanes + v * Vec::kLanes);
  total = total * rescale + sum_of_16(lanes);
  return needed;
}

}  // namespace
}  // namespace asynct::attention
