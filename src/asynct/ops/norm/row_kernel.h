#pragma once

#include "asynct/ops/norm/kernels.h"

// Written once over Vec; a unit includes a simd/math_<isa>.h before this.
namespace asynct::norm {
namespace {

inline void store(Vec y, float* to, std::int64_t count, bool round) {
  const Vec value = round ? round_lanes_to_bf16(y) : y;
  if (count >= Vec::kLanes)
    value.store(to);
  else
    value.store_first(to, count);
}

inline Vec load(const float* from, std::int64_t count) {
  return count >= Vec::kLanes ? Vec::load(from) : Vec::load_first(from, count);
}

// Multiply and add round separately, as in the reference.
void dyht(const RowArgs& args) {
  const Vec low = Vec::all(args.low);
  const Vec high = Vec::all(args.high);
  for (std::int64_t i = 0; i < args.size; i += Vec::kLanes) {
    const std::int64_t left = args.size - i;
    Vec t = load(args.alpha + i, left) * load(args.x + i, left);
    if (args.beta != nullptr) t = t + load(args.beta + i, left);
    store(load(args.gamma + i, left) * min(high, max(low, t)), args.y + i, left, args.round);
  }
}

// The sum of squares runs over 16 lanes, then a fixed tree, whatever the width of a vector.
float sum_of_squares(const float* x, std::int64_t size) {
  constexpr int kVecs = 16 / Vec::kLanes;
  Vec sums[kVecs];
  for (Vec& sum : sums) sum = Vec::zero();
  for (std::int64_t i = 0; i < size; i += 16)
    for (int v = 0; v < kVecs; ++v) {
      const std::int64_t left = size - i - v * Vec::kLanes;
      if (left <= 0) break;
      const Vec value = load(x + i + v * Vec::kLanes, left);
      sums[v] = Vec::fma(value, value, sums[v]);
    }
  float lanes[16];
  for (int v = 0; v < kVecs; ++v) sums[v].store(lanes + v * Vec::kLanes);
  return sum_of_16(lanes);
}

void rms(const RowArgs& args) {
  const float mean = sum_of_squares(args.x, args.size) / static_cast<float>(args.size);
  const Vec factor = Vec::all(1.0F / __builtin_sqrtf(mean + args.epsilon));
  for (std::int64_t i = 0; i < args.size; i += Vec::kLanes) {
    const std::int64_t left = args.size - i;
    store(load(args.gamma + i, left) * (load(args.x + i, left) * factor), args.y + i, left, args.round);
  }
}

constexpr KernelTable kTable = {dyht, rms};

}  // namespace
}  // namespace asynct::norm
