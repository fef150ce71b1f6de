#include "asynct/ops/simd/math_avx512.h"
// after the vectors
#include "asynct/ops/embedding/row_kernel.h"

namespace asynct::embedding {

constinit const KernelTable kAvx512Kernels = kTable;

}  // namespace asynct::embedding
