#pragma once

#include <cuda_runtime_api.h>

#include "asynct/python/tensor_ref.h"

// The element-wise kernels on tensors from Python: the same checks, then one launch.
namespace asynct::extension {

/// A DyHT's parameters: fp32 of one element or one a channel, each; beta.data null: absent.
struct DyhtTensors {
  TensorRef alpha;
  TensorRef gamma;
  TensorRef beta;
  float low = -1;
  float high = 1;
};

/// y = gamma * clamp(alpha * x + beta, low, high) of [rows, dims], rows any stride.
void run_dyht(TensorRef x, TensorRef y, const DyhtTensors& norm, cudaStream_t stream);

/// out = relu(gate) * up of [rows, neurons], rows any stride, that of gate and up the same.
void run_reglu(TensorRef gate, TensorRef up, TensorRef out, cudaStream_t stream);

}  // namespace asynct::extension
