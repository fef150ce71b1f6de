#include <immintrin.h>

#include <cstdint>

namespace asynct {
namespace {

// Dwords of bf16 pairs and sums of floats, as dot_kernels.h wants them.
struct Vec {
  static constexpr int kLanes = 16;
  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  static Vec fma(Vec a, Vec b, Vec sum) {
    return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
  }
};

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace asynct

#include "asynct/ops/linear/dot_kernels.h"

namespace asynct::linear {
namespace {

// Exact for bf16 values but subnormal ones, which become zero here as they would in the product.
void pack_pairs(const float* x, std::int64_t inputs, float* pairs) {
  for (std::int64_t i = 0; i < inputs; i += 32, pairs += 16) {
    const std::int64_t left = inputs - i;
    const std::uint32_t bits = left >= 32 ? ~0U : (1U << left) - 1U;
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits), x + i);
    const __m512 high = left > 16 ? _mm512_maskz_loadu_ps(static_cast<__mmask16>(bits >> 16), x + i + 16)
                                  : _mm512_setzero_ps();
    _mm512_storeu_ps(pairs, reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(high, low)));
  }
}

// 32 registers: a tile of 14 rows and two panels needs 28 sums, 2 weights and 1 input. Few rows need more
// panels, so that 8 or more chains hide the latency.
struct Limits {
  static constexpr int kRows = 14;
  static constexpr int kTilePanels = 2;
  static constexpr int panels(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
};

}  // namespace

constinit const KernelTable kAvx512Bf16Kernels = make_dot_table<Limits>(pack_pairs);

}  // namespace asynct::linear
