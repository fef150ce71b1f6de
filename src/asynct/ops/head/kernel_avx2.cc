#include "asynct/ops/simd/math_avx2.h"

#include "asynct/ops/head/stats_kernel.h"

namespace asynct::head {
constinit const KernelTable kAvx2Kernels = kTable;
}  // namespace asynct::head
