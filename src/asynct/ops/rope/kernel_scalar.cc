#include "asynct/ops/simd/math_scalar.h"
// after the vectors
#include "asynct/ops/rope/rotate_kernel.h"

namespace asynct::rope {

constinit const RotateKernel kScalarRotate = rotate;

}  // namespace asynct::rope
