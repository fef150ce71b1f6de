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

std::int64_t find_active(const float* gate, std::int64_t count, std::int32_t* index) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; i += Vec::kLanes) {
    const std::int64_t left = count - i;
    const Vec values = left >= Vec::kLanes ? Vec::load(gate + i) : Vec::load_first(gate + i, left);
    for (std::uint32_t bits = values.active(); bits != 0; bits &= bits - 1)
      index[found++] = static_cast<std::int32_t>(i) + __builtin_ctz(bits);
  }
  return found;
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/neuron_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kAvx2Kernels = make_table();
}  // namespace asynct::feed_forward
