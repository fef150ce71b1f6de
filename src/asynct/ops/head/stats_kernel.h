#pragma once

#include <cstdint>

#include "asynct/ops/head/kernels.h"
#include "asynct/ops/head/weight.h"

// Written once over Vec; a unit includes a simd/math_<isa>.h before this.
namespace asynct::head {
namespace {

constexpr float kLowest = -__builtin_inff();

// The logits from p on, lowest beyond `left`, so that they never win and add exp(-inf) = about 0 to no sum.
Vec load_or(const float* p, std::int64_t left, float filler) {
  if (left >= Vec::kLanes) return Vec::load(p);
  return blend_first(left, Vec::load_first(p, left), Vec::all(filler));
}

PieceStats largest(const float* logits, std::int64_t count) {
  Vec most = Vec::all(kLowest);
  std::uint32_t nans = 0;
  for (std::int64_t i = 0; i < count; i += Vec::kLanes) {
    const Vec values = load_or(logits + i, count - i, kLowest);
    nans |= values.nans();
    most = max(values, most);
  }
  PieceStats stats;
  if (nans != 0) return stats;
  float lanes[Vec::kLanes];
  most.store(lanes);
  stats.max = lanes[0];
  for (const float lane : lanes) stats.max = lane > stats.max ? lane : stats.max;
  for (std::int64_t i = 0; i < count; i += Vec::kLanes) {
    const std::uint32_t hits = load_or(logits + i, count - i, kLowest).equals(Vec::all(stats.max));
    if (hits == 0) continue;
    stats.argmax = static_cast<std::int32_t>(i) + __builtin_ctz(hits);
    break;
  }
  return stats;
}

// One chain a lane, lanes added in order: the same bits wherever the piece stands in a batch.
double exp_sum(const float* logits, std::int64_t count, float most) {
  DoubleSum sum;
  const Vec shift = Vec::all(most);
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes)
    sum.add(exp_of_nonpositive(Vec::load(logits + i) - shift));
  if (i < count)
    sum.add(blend_first(count - i, exp_of_nonpositive(load_or(logits + i, count - i, most) - shift),
                        Vec::zero()));
  double lanes[Vec::kLanes];
  sum.store(lanes);
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

// Plain loops, which compilers vectorize; bounded first, for a choice within the exponential keeps GCC from
// it.
void weights(const float* logits, std::int64_t count, float most, double scale, double* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = bounded_exponent(logits[i], most, scale);
  for (std::int64_t i = 0; i < count; ++i) out[i] = exp_of_bounded(out[i]);
}

constexpr KernelTable kTable{largest, exp_sum, weights};

}  // namespace
}  // namespace asynct::head
