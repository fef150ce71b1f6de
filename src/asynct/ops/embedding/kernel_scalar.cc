#include "asynct/ops/simd/math_scalar.h"
// after the vectors
#include "asynct/ops/embedding/row_kernel.h"

namespace asynct::embedding {

constinit const KernelTable kScalarKernels = kTable;

}  // namespace asynct::embedding
