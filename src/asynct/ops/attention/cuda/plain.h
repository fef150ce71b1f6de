#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/plain_policy.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// AsyncI over keys and values in blocks of any size, or in one piece: without a block table `first_key` says
/// where each sequence's first key lies in [keys, kv_heads, D] by the views' token and head strides.
struct PlainArgs {
  const void* query = nullptr;  // [T, H, D], rows query_stride apart
  void* out = nullptr;          // likewise
  std::int64_t query_stride = 0;
  std::int64_t out_stride = 0;
  KvView key;
  KvView value;
  const std::int32_t* block_table = nullptr;  // [B, max_blocks]
  const std::int64_t* first_key = nullptr;    // [B]
  const HeadFactors* factors = nullptr;       // [H]
  const DecodeUnit* few = nullptr;            // PlainPlan's units of few rows, and of many
  const PrefillUnit* many = nullptr;
  // What sums of several chunks take. Null where no context has more than kChunkKeys: the block table's rows
  // hold no more.
  float* partial = nullptr;          // [slots, kDecodeRows, D]: of few rows
  std::uint32_t* arrived = nullptr;  // [2, slots], zero before and after: chunks of a span, spans of a unit
  float* sums = nullptr;             // [plain_blocks(), 2, kPlainRows, D]: of many rows
  std::int32_t slots = 0;
  std::int32_t few_count = 0;
  std::int32_t many_count = 0;
  std::int32_t max_blocks = 0;
  std::int32_t block_size = 16;
  std::int32_t group = 1;  // query heads a KV head, at most kDecodeRows
  WeightForm form;
};

/// Blocks of the launch for many rows on the current device, at most.
std::int32_t plain_blocks(std::int32_t head_dim);

/// Launches both kinds of units on `stream`. head_dim 64, 128 or 256, pool_size 1, 2, 3 or 5, dtype bf16 or
/// f16 of queries, keys, values and output. Rows of the cache begin at multiples of 16 bytes, those of
/// queries and output of 4. Error for anything else, and for memory that is not there.
void run_plain(const PlainArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
               cudaStream_t stream);

}  // namespace asynct::cuda
