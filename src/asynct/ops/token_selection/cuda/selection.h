#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// How one row's token is chosen: the fields of the engine's SamplingParams that act on finished logits,
/// valid as it checks them, and the number of tokens that the request has drawn before.
struct TokenChoice {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  float temperature = 0;  // 0: the largest logit, of equal ones the first
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
};

struct TokenSelectionArgs {
  const void* logits = nullptr;  // [rows, vocabulary], row_stride elements apart, a multiple of 16 bytes
  const TokenChoice* choices = nullptr;  // [rows]
  std::int32_t* tokens = nullptr;        // [rows]; -1 where a logit is NaN or the largest is infinite
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int32_t vocabulary = 0;  // at most kMostTokens
};

inline constexpr std::int32_t kMostTokens = 8 * 65536;

/// Launches the choice of a token of each row on `stream`; dtype bf16, f16 or f32 of the logits, readable up
/// to row_stride. The token is the one that the CPU's sampler chooses, for the same definition, weights and
/// random numbers; sums are added in another order, so the two may differ where a drawn point lies within
/// 1e-13 of the border between two tokens. A row's choice depends on its logits and its TokenChoice only.
/// Error for anything else.
void run_token_selection(const TokenSelectionArgs& args, DType dtype, cudaStream_t stream);

}  // namespace asynct::cuda
