#include "asynct/ops/probe/kernels.h"
#include "asynct/ops/simd/vec_scalar.h"
//
#include "asynct/ops/probe/probe_kernel.h"

namespace asynct::probe {

const KernelTable kScalarKernels = {multiply_add, read};

}  // namespace asynct::probe
