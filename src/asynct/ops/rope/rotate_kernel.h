#pragma once

#include "asynct/ops/rope/kernels.h"

// Written once over Vec; a unit includes a simd/math_<isa>.h before this.
namespace asynct::rope {
namespace {

// Products round before they are added, as in the reference.
void rotate(float* head, const float* cos, const float* sin, std::int64_t half) {
  float* const upper = head + half;
  for (std::int64_t i = 0; i < half; i += Vec::kLanes) {
    const std::int64_t count = half - i < Vec::kLanes ? half - i : Vec::kLanes;
    const Vec a = Vec::load_first(head + i, count);
    const Vec b = Vec::load_first(upper + i, count);
    const Vec c = Vec::load_first(cos + i, count);
    const Vec s = Vec::load_first(sin + i, count);
    (a * c - b * s).store_first(head + i, count);
    (b * c + a * s).store_first(upper + i, count);
  }
}

}  // namespace
}  // namespace asynct::rope
