#include "asynct/ops/probe/kernels.h"
#include "asynct/ops/simd/vec_avx512.h"
//
#include "asynct/ops/probe/probe_kernel.h"

namespace asynct::probe {

const KernelTable kAvx512Kernels = {multiply_add, read};

}  // namespace asynct::probe
