#pragma once

namespace asynct::cuda {

/// relu(gate) * up. A gate that is not above zero gives 0, whatever up is: the CPU's operator does not read
/// it. A NaN gate gives NaN.
__device__ inline float reglu(float gate, float up) { return gate <= 0 ? 0.F : __fmul_rn(gate, up); }

}  // namespace asynct::cuda
