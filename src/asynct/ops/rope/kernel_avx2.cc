#include "asynct/ops/simd/math_avx2.h"
// after the vectors
#include "asynct/ops/rope/rotate_kernel.h"

namespace asynct::rope {

constinit const RotateKernel kAvx2Rotate = rotate;

}  // namespace asynct::rope
