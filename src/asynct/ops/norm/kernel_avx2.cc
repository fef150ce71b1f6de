#include "asynct/ops/simd/math_avx2.h"
// after the vectors
#include "asynct/ops/norm/row_kernel.h"

namespace asynct::norm {

constinit const KernelTable kAvx2Kernels = kTable;

}  // namespace asynct::norm
