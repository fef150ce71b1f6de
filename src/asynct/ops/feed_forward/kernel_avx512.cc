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

// Neighbours in the same tree: after two steps a 128-bit lane holds four lanes of one sum.
inline void multiply_by_sums(const Vec (&sum)[4][1], float* h) {
  const __m512 a = sum[0][0].v;
  const __m512 b = sum[1][0].v;
  const __m512 c = sum[2][0].v;
  const __m512 d = sum[3][0].v;
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xb1));
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  const __m128 sums = _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one));
  _mm_storeu_ps(h, _mm_mul_ps(_mm_loadu_ps(h), sums));
}

std::uint32_t take_active(const float* gate, std::int64_t count, std::int32_t base, std::int32_t* index,
                          float* values) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i position = _mm512_add_epi32(lanes, _mm512_set1_epi32(base));
  const Vec gates = count >= Vec::kLanes ? Vec::load(gate) : Vec::load_first(gate, count);
  const auto bits = static_cast<__mmask16>(gates.active());
  // Compressing in a register and storing all lanes: the compressing store is slow on some CPUs.
  _mm512_storeu_si512(index, _mm512_maskz_compress_epi32(bits, position));
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(bits, gates.v));
  return bits;
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/tile_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kAvx512Kernels = make_table();
}  // namespace asynct::feed_forward
