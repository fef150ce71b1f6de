#include "asynct/ops/simd/math_avx512.h"

#include "asynct/ops/head/stats_kernel.h"

namespace asynct::head {
constinit const KernelTable kAvx512Kernels = kTable;
}  // namespace asynct::head
