#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace asynct::kernel_bench {

/// A baseline, no kernel of the engine: AsyncI decode of one token a sequence over a paged bf16 cache
/// [blocks, block_size, Hk, D] (contiguous), laid out as attention kernels without matrix instructions are.
/// All pointers are device memory.
struct CudaCoreDecodeArgs {
  const void* query = nullptr;  // [B, H, D]
  const void* key = nullptr;
  const void* value = nullptr;
  const std::int32_t* block_table = nullptr;     // [B, max_blocks]
  const std::int32_t* context_length = nullptr;  // [B]
  const float* slope = nullptr;                  // [H]; scale multiplied in
  const float* bias = nullptr;                   // [H]
  const float* sigma = nullptr;                  // [H]; scale / pool_size multiplied in
  const float* gain = nullptr;                   // [H]
  float* partial = nullptr;                      // [B, H, partitions, D]
  void* out = nullptr;                           // [B, H, D]
  std::int32_t sequences = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t partitions = 0;  // of kCudaCorePartition keys, for the longest context
  std::int32_t max_blocks = 0;
  std::int32_t block_shift = 4;
  std::int32_t pool_size = 3;  // up to 5
};

inline constexpr std::int32_t kCudaCorePartition = 512;

/// Two launches on `stream`. head_dim 64 or 128, pool_size 1 to 5; scores are pooled with relu. Error else.
void run_cuda_core_decode(const CudaCoreDecodeArgs& args, std::int32_t head_dim, cudaStream_t stream);

}  // namespace asynct::kernel_bench
