#include "asynct/ops/simd/math_scalar.h"

namespace asynct::feed_forward {
namespace {

float sum_lanes(const Vec (&sum)[1]) {
  Vec lanes = sum[0];
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes.v[i] += lanes.v[i + half];
  return lanes.v[0];
}

void multiply_by_sums(const Vec (&sum)[4][1], float* h) {
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
constinit const KernelTable kScalarKernels = make_table();
}  // namespace asynct::feed_forward
