#include "asynct/ops/simd/math_avx512.h"

namespace asynct::feed_forward {
namespace {

// Lanes l and l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(const Vec (&sum)[1]) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum[0].v), _mm512_extractf32x8_ps(sum[0].v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

std::int64_t find_active(const float* gate, std::int64_t count, std::int32_t* index) {
  std::int64_t found = 0;
  __m512i position = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t i = 0; i < count; i += Vec::kLanes) {
    const std::int64_t left = count - i;
    const Vec values = left >= Vec::kLanes ? Vec::load(gate + i) : Vec::load_first(gate + i, left);
    const std::uint32_t bits = values.active();
    // Compressing in a register and storing all lanes: the compressing store is slow on some CPUs.
    _mm512_storeu_si512(index + found, _mm512_maskz_compress_epi32(static_cast<__mmask16>(bits), position));
    found += __builtin_popcount(bits);
    position = _mm512_add_epi32(position, _mm512_set1_epi32(Vec::kLanes));
  }
  return found;
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/neuron_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kAvx512Kernels = make_table();
}  // namespace asynct::feed_forward
