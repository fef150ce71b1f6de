#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// Describes queries [rows, heads, head_dim], keys and values [blocks, block_size, kv_heads, head_dim] to the
/// copy engine. Blocks of 16 tokens and more.
struct PrefillTensors {
  DType dtype = DType::bf16;
  const void* query = nullptr;
  std::int64_t query_stride = 0;  // elements from row to row
  std::int32_t rows = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t blocks = 0;
  std::int32_t block_size = 16;
};
void set_tensors(PrefillArgs& args, const PrefillTensors& tensors, const KvView& key, const KvView& value);

/// Launches prefill on `stream`. head_dim 64 or 128, pool_size 1, 2, 3 or 5, dtype bf16 or f16. Error
/// for anything else.
void run_prefill(const PrefillArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
                 cudaStream_t stream);

}  // namespace asynct::cuda
