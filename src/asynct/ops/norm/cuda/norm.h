#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/norm/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// Error unless a kernel can read these parameters: present, aligned, low <= high, epsilon at least 0.
void check_norm(const char* kernel, const DyhtParams& norm);
void check_norm(const char* kernel, const RmsParams& norm);

/// Launches y = DyHT(x) on `stream`; dtype bf16, f16 or f32 of x and y. Arithmetic in float, one rounding.
/// Pointers, strides and dims are multiples of 16 bytes. Error for anything else.
void run_norm(const NormArgs& args, DType dtype, cudaStream_t stream);

/// The same for y = RMS(x), by vectors of at most kMostRmsDims.
void run_rms_norm(const RmsNormArgs& args, DType dtype, cudaStream_t stream);

}  // namespace asynct::cuda
