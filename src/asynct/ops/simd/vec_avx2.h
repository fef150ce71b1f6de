#pragma once

#include <immintrin.h>

#include <cstdint>

// See vec_avx512.h for why everything here is local to the including unit.
namespace asynct {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  __m256 v;

  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec all(float value) { return {_mm256_set1_ps(value)}; }
  static Vec broadcast(const float* p) { return {_mm256_broadcast_ss(p)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load_first(const float* p, std::int64_t count) { return {_mm256_maskload_ps(p, first(count))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store_first(float* p, std::int64_t count) const { _mm256_maskstore_ps(p, first(count), v); }

  /// Low and high halves of 8 dwords of bf16 pairs, widened.
  static Vec load_bf16_low(const std::uint16_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(dwords(p), 16))};
  }
  static Vec load_bf16_high(const std::uint16_t* p) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    return {_mm256_castsi256_ps(_mm256_and_si256(dwords(p), mask))};
  }
  static Vec load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }

  /// a * b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }

  /// Bit i: lane i is above zero or NaN; is NaN; equals value.
  std::uint32_t active() const { return mask(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ)); }
  std::uint32_t nans() const { return mask(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)); }
  std::uint32_t equals(Vec value) const { return mask(_mm256_cmp_ps(v, value.v, _CMP_EQ_OQ)); }

  static std::uint32_t mask(__m256 lanes) { return static_cast<std::uint32_t>(_mm256_movemask_ps(lanes)); }
  static __m256i dwords(const std::uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static __m256i first(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

/// A sum in double for each lane of Vec.
struct DoubleSum {
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();

  void add(Vec x) {
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(x.v)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1)));
  }
  void store(double* lanes) const {
    _mm256_storeu_pd(lanes, low);
    _mm256_storeu_pd(lanes + 4, high);
  }
};

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace asynct
