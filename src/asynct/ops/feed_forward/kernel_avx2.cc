#include "asynct/ops/simd/math_avx2.h"

namespace asynct::feed_forward {
namespace {

// Lanes l and l + 8, then l + 4, l + 2, l + 1.
inline float sum_lanes(const Vec (&sum)[2]) {
  const __m256 eight = _mm256_add_ps(sum[0].v, sum[1].v);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/narrow_kernels.h"
//
#include "asynct/ops/feed_forward/tile_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kAvx2Kernels = make_table();
}  // namespace asynct::feed_forward
