#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/norm/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// ResidualEpilogue on the device, for a product that is already in memory; strides in elements.
///   residual += has_post ? post(product) : product;   next_input = next(residual)
template <class Params>
struct ResidualArgsOf {
  const void* product = nullptr;  // [rows, size]
  void* residual = nullptr;       // [rows, size]
  void* next_input = nullptr;     // [rows, size]; may be product when their dtypes are equal
  std::int64_t product_stride = 0;
  std::int64_t residual_stride = 0;
  std::int64_t next_stride = 0;
  std::int64_t rows = 0;
  std::int32_t size = 0;
  bool has_post = false;
  Params post;
  Params next;  // the next block's norm, or the final norm
};
using ResidualArgs = ResidualArgsOf<DyhtParams>;
using RmsResidualArgs = ResidualArgsOf<RmsParams>;

/// Launches it on `stream`; dtype bf16, f16 or f32 of residual and next_input, `product_dtype` that or f32.
/// Rounds where the CPU does: the residual once, and the next input from the rounded residual. A product in
/// f32 gives what a product's own epilogue gives; a rounded one has that rounding more. Pointers, strides and
/// sizes are multiples of 16 bytes. Error for anything else.
void run_residual(const ResidualArgs& args, DType dtype, DType product_dtype, cudaStream_t stream);

/// The same with RMS norms of at most kMostRmsDims channels.
void run_rms_residual(const RmsResidualArgs& args, DType dtype, DType product_dtype, cudaStream_t stream);

}  // namespace asynct::cuda
