#include "asynct/ops/simd/math_avx512.h"
// after the vectors
#include "asynct/ops/rope/rotate_kernel.h"

namespace asynct::rope {

constinit const RotateKernel kAvx512Rotate = rotate;

}  // namespace asynct::rope
