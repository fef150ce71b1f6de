#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "asynct/ops/kernel_bench/candidate.h"

namespace asynct::kernel_bench {

/// The tensors of one input set, inputs and outputs, in the group's order.
using Tensors = std::vector<std::uint16_t*>;

/// A kernel over plain tensors.
struct TensorKernel {
  std::string variant;
  Floor floor;
  std::function<void(const Tensors& tensors, cudaStream_t stream)> launch;
};

/// Kernels over tensors of `sizes` 16-bit elements each (even), all filled with normal bf16 numbers.
LazyGroup tensor_group(std::string kernel, std::string shape, std::vector<std::size_t> sizes,
                       std::vector<TensorKernel> kernels, double cache_bytes);

}  // namespace asynct::kernel_bench
