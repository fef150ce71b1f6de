#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/head/head.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// What is kept of kPieceTokens logits of a row.
struct alignas(16) LogitPiece {
  std::uint64_t largest;  // logit_key of the piece's largest
  std::uint32_t exp_sum;  // sum of exp(logit - largest logit) in units of 2^-23
  std::uint32_t unused;
};

/// Where what is kept of the logits goes, be they in memory or in a product's tile. Device memory.
struct LogitPiecesArgs {
  LogitPiece* pieces = nullptr;                // [rows, pieces_of(vocabulary)]
  float* target_logits = nullptr;              // [targets]
  const ScoreTarget* targets = nullptr;        // [targets], ascending by row
  const std::int32_t* first_target = nullptr;  // [rows + 1] of each row; null: there are no targets
  std::int64_t rows = 0;
  std::int32_t vocabulary = 0;
};

/// Launches the pieces of logits [rows, vocabulary] that lie in memory on `stream`; dtype bf16, f16 or f32.
/// Rows are `row_stride` elements apart, a multiple of 16 bytes, and readable up to it. Error for anything
/// else. The kernels of a product can do this on the tiles of their sums instead: logit_pieces.cuh.
void run_logit_pieces(const LogitPiecesArgs& args, const void* logits, std::int64_t row_stride, DType dtype,
                      cudaStream_t stream);

/// Launches what follows: scores[i] of targets[i], as Head::score gives them, and argmax of each row, as
/// Head::greedy; either may be null. Device memory.
void run_scores(const LogitPiecesArgs& args, TokenScore* scores, std::int32_t* argmax, cudaStream_t stream);

}  // namespace asynct::cuda
