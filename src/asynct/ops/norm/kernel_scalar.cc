#include "asynct/ops/simd/math_scalar.h"
// after the vectors
#include "asynct/ops/norm/row_kernel.h"

namespace asynct::norm {

constinit const KernelTable kScalarKernels = kTable;

}  // namespace asynct::norm
