#pragma once

#include <immintrin.h>

#include <cstdint>

// Vectors for kernel translation units: each unit includes one vec_<isa>.h, and everything is local to the
// unit, so that the linker can never pick a copy compiled for a CPU that is not there.
namespace asynct {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec all(float value) { return {_mm512_set1_ps(value)}; }
  static Vec broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load_first(const float* p, std::int64_t count) {
    return {_mm512_maskz_loadu_ps(first(count), p)};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_first(float* p, std::int64_t count) const { _mm512_mask_storeu_ps(p, first(count), v); }

  /// Low and high halves of 16 dwords of bf16 pairs, widened.
  static Vec load_bf16_low(const std::uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  static Vec load_bf16_high(const std::uint16_t* p) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), mask))};
  }
  static Vec load_f16(const std::uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }

  /// a * b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

  /// Bit i: lane i is above zero or NaN; is NaN; equals value.
  std::uint32_t active() const { return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ); }
  std::uint32_t nans() const { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q); }
  std::uint32_t equals(Vec value) const { return _mm512_cmp_ps_mask(v, value.v, _CMP_EQ_OQ); }

  static __mmask16 first(std::int64_t count) { return static_cast<__mmask16>((1U << count) - 1U); }
};

/// A sum in double for each lane of Vec.
struct DoubleSum {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();

  void add(Vec x) {
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(x.v)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)));
  }
  void store(double* lanes) const {
    _mm512_storeu_pd(lanes, low);
    _mm512_storeu_pd(lanes + 8, high);
  }
};

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace asynct
