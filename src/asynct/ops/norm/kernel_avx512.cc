#include "asynct/ops/simd/math_avx512.h"
// after the vectors
#include "asynct/ops/norm/row_kernel.h"

namespace asynct::norm {

constinit const KernelTable kAvx512Kernels = kTable;

}  // namespace asynct::norm
