#include "asynct/ops/simd/math_scalar.h"
// after the vectors
#include "asynct/ops/attention/unit_kernel.h"

namespace asynct::attention {

constinit const KernelTable kScalarKernels = kTable;

}  // namespace asynct::attention
