#include "asynct/ops/simd/math_avx512.h"
// after the vectors
#include "asynct/ops/attention/unit_kernel.h"

namespace asynct::attention {

constinit const KernelTable kAvx512Kernels = kTable;

}  // namespace asynct::attention
