#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// out[row] = multiplier * table[tokens[row]]; strides in elements, device memory.
struct EmbeddingArgs {
  const void* table = nullptr;           // [vocabulary, size], rows next to each other
  const std::int32_t* tokens = nullptr;  // [rows]
  void* out = nullptr;                   // [rows, size]
  std::int64_t out_stride = 0;
  std::int64_t rows = 0;
  std::int32_t vocabulary = 0;
  std::int32_t size = 0;
  float multiplier = 1;
};

/// Launches it on `stream`; dtype bf16, f16 or f32 of table and out; one rounding. A token outside of the
/// vocabulary gives a row of NaN: nothing else can be said from a kernel. Pointers, stride and size are
/// multiples of 16 bytes. Error for anything else.
void run_embedding(const EmbeddingArgs& args, DType dtype, cudaStream_t stream);

}  // namespace asynct::cuda
