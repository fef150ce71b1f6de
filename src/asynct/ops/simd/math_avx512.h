#pragma once

#include "asynct/ops/simd/vec_avx512.h"

// Arithmetic on Vec for operators that do more than multiply and add.
namespace asynct {
namespace {

inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
/// The second operand where either is NaN: keep the value second, so that NaN in gives NaN out.
inline Vec min(Vec bound, Vec value) { return {_mm512_min_ps(bound.v, value.v)}; }
inline Vec max(Vec bound, Vec value) { return {_mm512_max_ps(bound.v, value.v)}; }

inline Vec load_as_float(const float* p) { return Vec::load(p); }
inline Vec load_as_float(const std::uint16_t* p) {  // bf16
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

/// Each lane rounded to the nearest bf16, ties to even; NaN stays NaN.
inline Vec round_lanes_to_bf16(Vec a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_mov_epi32(up, nan, quiet);
  return {_mm512_castsi512_ps(_mm512_and_si512(chosen, _mm512_set1_epi32(static_cast<int>(0xffff0000U))))};
}

/// `a` in the lanes below `count`, `b` in the others; any count.
inline Vec blend_first(std::int64_t count, Vec a, Vec b) {
  const std::int64_t lanes = count < 0 ? 0 : count > 16 ? 16 : count;
  return {_mm512_mask_blend_ps(Vec::first(lanes), b.v, a.v)};
}

/// Bit i is set where lane i is not zero (NaN is not).
inline unsigned nonzero_lanes(Vec a) { return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NEQ_UQ); }

inline Vec nearest_integer(Vec a) { return {_mm512_roundscale_ps(a.v, 8)}; }  // 8: no exceptions, to nearest
/// 2^n for integral n in [-126, 127].
inline Vec power_of_two(Vec n) {
  const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

}  // namespace
}  // namespace asynct

#include "asynct/ops/simd/math_common.h"
