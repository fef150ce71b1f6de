#include "asynct/ops/simd/math_scalar.h"

namespace asynct::feed_forward {
namespace {

float sum_lanes(const Vec (&sum)[1]) {
  Vec lanes = sum[0];
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes.v[i] += lanes.v[i + half];
  return lanes.v[0];
}

std::int64_t find_active(const float* gate, std::int64_t count, std::int32_t* index) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i)
    if (!(gate[i] <= 0)) index[found++] = static_cast<std::int32_t>(i);
  return found;
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/neuron_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kScalarKernels = make_table();
}  // namespace asynct::feed_forward
