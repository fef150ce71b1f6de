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

void multiply_by_sums(const Vec (&sum)[4][2], float* h) {
  for (int j = 0; j < 4; ++j) h[j] *= sum_lanes(sum[j]);
}

std::uint32_t take_active(const float* gate, std::int64_t count, std::int32_t base, std::int32_t* index,
                          float* values) {
  std::uint32_t active = 0;
  for (int i = 0; i < 16 && i < count; i += Vec::kLanes) {
    const Vec vec = count - i >= Vec::kLanes ? Vec::load(gate + i) : Vec::load_first(gate + i, count - i);
    active |= vec.active() << i;
  }
  int found = 0;
  for (std::uint32_t bits = active; bits != 0; bits &= bits - 1, ++found) {
    const int i = __builtin_ctz(bits);
    index[found] = base + i;
    values[found] = gate[i];
  }
  return active;
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/tile_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kAvx2Kernels = make_table();
}  // namespace asynct::feed_forward
