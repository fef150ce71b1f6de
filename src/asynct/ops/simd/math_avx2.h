#pragma once

#include "asynct/ops/simd/vec_avx2.h"

// See math_avx512.h.
namespace asynct {
namespace {

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec min(Vec bound, Vec value) { return {_mm256_min_ps(bound.v, value.v)}; }
inline Vec max(Vec bound, Vec value) { return {_mm256_max_ps(bound.v, value.v)}; }

inline Vec load_as_float(const float* p) { return Vec::load(p); }
inline Vec load_as_float(const std::uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
}

inline Vec round_lanes_to_bf16(Vec a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(up, quiet, nan);
  return {_mm256_castsi256_ps(_mm256_and_si256(chosen, _mm256_set1_epi32(static_cast<int>(0xffff0000U))))};
}

inline Vec blend_first(std::int64_t count, Vec a, Vec b) {
  const std::int64_t lanes = count < 0 ? 0 : count > 8 ? 8 : count;
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(Vec::first(lanes)))};
}

inline unsigned nonzero_lanes(Vec a) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_NEQ_UQ)));
}

inline Vec nearest_integer(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vec power_of_two(Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}

}  // namespace
}  // namespace asynct

#include "asynct/ops/simd/math_common.h"
