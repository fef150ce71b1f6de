#include "asynct/ops/simd/math_scalar.h"

#include "asynct/ops/head/stats_kernel.h"

namespace asynct::head {
constinit const KernelTable kScalarKernels = kTable;
}  // namespace asynct::head
