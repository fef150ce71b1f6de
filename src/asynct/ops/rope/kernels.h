#pragma once

#include <cstdint>

// Private to Rope: (a, b) <- (a cos - b sin, b cos + a sin) for the halves of a head, one kernel for each
// ISA.
namespace asynct::rope {

using RotateKernel = void (*)(float* head, const float* cos, const float* sin, std::int64_t half);

extern const RotateKernel kScalarRotate;
extern const RotateKernel kAvx2Rotate;
extern const RotateKernel kAvx512Rotate;

}  // namespace asynct::rope
