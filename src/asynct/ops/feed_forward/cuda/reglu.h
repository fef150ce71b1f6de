#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// out = relu(gate) * up, [rows, neurons] each; strides in elements. gate and up may be the halves of rows
/// [2 * neurons].
struct RegluArgs {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* out = nullptr;  // may be gate or up when their dtypes are equal
  std::int64_t input_stride = 0;
  std::int64_t out_stride = 0;
  std::int64_t rows = 0;
  std::int32_t neurons = 0;
};

/// Launches it on `stream`; dtype bf16, f16 or f32 of out, `input_dtype` that or f32 of gate and up. One
/// rounding. A neuron whose gate is not above zero gives 0, whatever its up is; one whose gate is NaN gives
/// NaN: as on the CPU. Pointers, strides and neurons are multiples of 16 bytes. Error for anything else.
void run_reglu(const RegluArgs& args, DType dtype, DType input_dtype, cudaStream_t stream);

}  // namespace asynct::cuda
