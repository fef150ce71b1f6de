#pragma once

#include "asynct/ops/simd/vec_scalar.h"

// See math_avx512.h.
namespace asynct {
namespace {

template <class Function>
inline Vec map_lanes(Vec a, Vec b, Function function) {
  for (int i = 0; i < Vec::kLanes; ++i) a.v[i] = function(a.v[i], b.v[i]);
  return a;
}

inline Vec operator+(Vec a, Vec b) {
  return map_lanes(a, b, [](float x, float y) { return x + y; });
}
inline Vec operator-(Vec a, Vec b) {
  return map_lanes(a, b, [](float x, float y) { return x - y; });
}
inline Vec operator*(Vec a, Vec b) {
  return map_lanes(a, b, [](float x, float y) { return x * y; });
}
inline Vec operator/(Vec a, Vec b) {
  return map_lanes(a, b, [](float x, float y) { return x / y; });
}
inline Vec min(Vec bound, Vec value) {
  return map_lanes(bound, value, [](float x, float y) { return x < y ? x : y; });
}
inline Vec max(Vec bound, Vec value) {
  return map_lanes(bound, value, [](float x, float y) { return x > y ? x : y; });
}

inline Vec load_as_float(const float* p) { return Vec::load(p); }
inline Vec load_as_float(const std::uint16_t* p) {
  Vec out;
  for (int i = 0; i < Vec::kLanes; ++i) out.v[i] = to_float(Bf16{p[i]});
  return out;
}

inline Vec round_lanes_to_bf16(Vec a) {
  for (float& lane : a.v) lane = round_to_bf16(lane);
  return a;
}

inline Vec blend_first(std::int64_t count, Vec a, Vec b) {
  for (int i = 0; i < Vec::kLanes; ++i) b.v[i] = i < count ? a.v[i] : b.v[i];
  return b;
}

inline unsigned nonzero_lanes(Vec a) {
  unsigned bits = 0;
  for (int i = 0; i < Vec::kLanes; ++i) bits |= static_cast<unsigned>(a.v[i] != 0) << i;
  return bits;
}

inline Vec nearest_integer(Vec a) {
  for (float& lane : a.v) lane = __builtin_nearbyintf(lane);
  return a;
}
inline Vec power_of_two(Vec n) {
  for (float& lane : n.v)  // NaN, which the caller multiplies by NaN, must not reach the conversion
    lane = lane == lane ? std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<int>(lane) + 127) << 23)
                        : 1.0F;
  return n;
}

}  // namespace
}  // namespace asynct

#include "asynct/ops/simd/math_common.h"
