#include "asynct/ops/simd/math_avx2.h"
// after the vectors
#include "asynct/ops/attention/unit_kernel.h"

namespace asynct::attention {

constinit const KernelTable kAvx2Kernels = kTable;

}  // namespace asynct::attention
