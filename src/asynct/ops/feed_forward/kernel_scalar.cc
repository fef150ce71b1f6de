#include "asynct/ops/simd/math_scalar.h"

namespace asynct::feed_forward {
namespace {

float sum_lanes(const Vec (&sum)[1]) {
  Vec lanes = sum[0];
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes.v[i] += lanes.v[i + half];
  return lanes.v[0];
}

}  // namespace
}  // namespace asynct::feed_forward

#include "asynct/ops/feed_forward/narrow_kernels.h"
//
#include "asynct/ops/feed_forward/tile_kernels.h"

namespace asynct::feed_forward {
constinit const KernelTable kScalarKernels = make_table();
}  // namespace asynct::feed_forward
