#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// Describes the cache to the copy engine: keys and values [blocks, block_size, kv_heads, head_dim] by their
/// strides. Once a layer.
void set_cache(DecodeArgs& args, const KvView& key, const KvView& value, DType dtype, std::int32_t blocks,
               std::int32_t block_size, std::int32_t kv_heads, std::int32_t head_dim);

/// Launches decode on `stream`: AsyncI over paged keys and values, rows of few tokens. head_dim 64 or 128,
/// pool_size 1, 2, 3 or 5, dtype bf16 or f16 of queries, keys, values and output. Error for anything else.
void run_decode(const DecodeArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
                cudaStream_t stream);

}  // namespace asynct::cuda
