#include "asynct/ops/simd/math_avx2.h"
// after the vectors
#include "asynct/ops/embedding/row_kernel.h"

namespace asynct::embedding {

constinit const KernelTable kAvx2Kernels = kTable;

}  // namespace asynct::embedding
