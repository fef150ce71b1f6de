#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// Launches decode and prefill of one step as one kernel, `decode_blocks` blocks of it for decode
/// (mixed_decode_blocks()). For what both take: bf16, at most 8 query rows a KV head of decode, form.plain.
/// Error for anything else; the two launches give the same bits.
void run_mixed(const DecodeArgs& decode, const PrefillArgs& prefill, std::int32_t decode_blocks, DType dtype,
               std::int32_t head_dim, std::int32_t pool_size, cudaStream_t stream);

/// Whether run_mixed() takes them.
bool mixed_takes(const DecodeArgs& decode, const PrefillArgs& prefill, DType dtype);

}  // namespace asynct::cuda
