#include "asynct/ops/head/cuda/score.h"

#include <algorithm>
#include <limits>

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/head/cuda/logit_pieces.cuh"

// Log-probabilities of chosen tokens, and the largest logit, of rows of logits.
//
// Floors: the pieces read each logit once, 2 or 4 bytes of 151,936 a row, and write 16 bytes of 128 logits;
// the scores read those: 19 KB a row, over the read rate.
namespace asynct::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kScoreThreads = 256;

struct InMemoryArgs {
  LogitPiecesArgs to;
  const void* logits;
  std::int64_t row_stride;
};

/// A warp takes 16 bytes a lane of a row, kRuns times, the loads of all in flight.
template <class Element, int kRuns>
__global__ void __launch_bounds__(kWarps * 32) pieces_kernel(const __grid_constant__ InMemoryArgs args) {
  constexpr int kCount = kVectorSize<Element>;
  constexpr int kLanes = kPieceTokens / kCount;
  launch_dependents();
  wait_for_launcher();
  const std::int64_t row = blockIdx.y + static_cast<std::int64_t>(gridDim.y) * blockIdx.z;
  if (row >= args.to.rows) return;
  const auto* const from = static_cast<const Element*>(args.logits) + row * args.row_stride;
  const int lane = threadIdx.x % 32;
  const int first_piece = (blockIdx.x * kWarps + threadIdx.x / 32) * kRuns * (32 / kLanes) + lane / kLanes;
  float logits[kRuns][kCount];
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int token = (first_piece + i * (32 / kLanes)) * kPieceTokens + lane % kLanes * kCount;
    if (token < args.to.vocabulary) load_vector(from + token, logits[i]);
  }
#pragma unroll
  for (int i = 0; i < kRuns; ++i) {
    const int piece = first_piece + i * (32 / kLanes);
    if (piece - lane / kLanes >= pieces_of(args.to.vocabulary)) return;  // the whole warp
    keep_piece<kLanes>(args.to, row, piece, logits[i]);
  }
}

template <class Element, int kRuns>
void launch_pieces(const InMemoryArgs& args, cudaStream_t stream) {
  constexpr int kPiecesABlock = kWarps * kRuns * 32 * kVectorSize<Element> / kPieceTokens;
  constexpr std::int64_t kMostY = 32768;
  const auto blocks =
      static_cast<unsigned>((pieces_of(args.to.vocabulary) + kPiecesABlock - 1) / kPiecesABlock);
  const auto y = static_cast<unsigned>(std::min(args.to.rows, kMostY));
  const auto z = static_cast<unsigned>((args.to.rows + kMostY - 1) / kMostY);
  launch_overlapped(pieces_kernel<Element, kRuns>, "logit pieces", dim3(blocks, y, z), dim3(kWarps * 32),
                    args, stream);
}

struct ScoreArgs {
  LogitPiecesArgs from;
  TokenScore* scores;
  std::int32_t* argmax;
};

template <class T, class Combine>
__device__ T combine_block(T value, T (&warps)[kScoreThreads / 32], Combine combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[0];
#pragma unroll
  for (int warp = 1; warp < kScoreThreads / 32; ++warp) value = combine(value, warps[warp]);
  return value;
}

/// A block a row; its pieces are added by kScoreThreads threads, then by a tree: one order, always.
__global__ void __launch_bounds__(kScoreThreads) scores_kernel(const __grid_constant__ ScoreArgs args) {
  __shared__ std::uint64_t keys[kScoreThreads / 32];
  __shared__ double sums[kScoreThreads / 32];
  launch_dependents();
  wait_for_launcher();
  const std::int64_t row = blockIdx.x;
  const int count = pieces_of(args.from.vocabulary);
  const LogitPiece* const pieces = args.from.pieces + row * count;
  std::uint64_t largest = kNoLogit;
  for (int i = threadIdx.x; i < count; i += kScoreThreads) largest = max(largest, pieces[i].largest);
  largest = combine_block(largest, keys, [](std::uint64_t a, std::uint64_t b) { return max(a, b); });
  const bool has_choice = is_choice(largest);
  if (args.argmax != nullptr && threadIdx.x == 0) args.argmax[row] = has_choice ? key_token(largest) : -1;
  if (args.scores == nullptr || args.from.first_target == nullptr) return;
  const int first = args.from.first_target[row], end = args.from.first_target[row + 1];
  if (first == end) return;
  const double most = key_logit(largest);
  double sum = 0;
  for (int i = threadIdx.x; i < count && has_choice; i += kScoreThreads) {
    const float piece = key_logit(pieces[i].largest);
    if (!isinf(piece)) sum += pieces[i].exp_sum * 0x1p-23 * exp(piece - most);  // else nothing but -infinity
  }
  sum = combine_block(sum, sums, [](double a, double b) { return a + b; });
  const double log_sum = has_choice ? most + log(sum) : static_cast<double>(__int_as_float(0x7fffffff));
  for (int i = first + static_cast<int>(threadIdx.x); i < end; i += kScoreThreads)
    args.scores[i] = {.logprob = static_cast<float>(args.from.target_logits[i] - log_sum),
                      .argmax = has_choice ? key_token(largest) : -1,
                      .argmax_logprob = static_cast<float>(most - log_sum)};
}

void check(const char* kernel, const LogitPiecesArgs& args) {
  if (args.rows < 0 || args.rows > std::numeric_limits<std::int32_t>::max())
    fail(kernel, ": ", args.rows, " rows, expected 0 to 2^31 - 1");
  if (args.vocabulary <= 0) fail(kernel, ": a vocabulary of ", args.vocabulary, ", expected at least 1");
  expect_aligned(kernel, "pieces", args.pieces);
  if (args.first_target != nullptr && (args.targets == nullptr || args.target_logits == nullptr))
    fail(kernel, ": no targets, or nowhere to keep their logits");
}

}  // namespace

void run_logit_pieces(const LogitPiecesArgs& args, const void* logits, std::int64_t row_stride, DType dtype,
                      cudaStream_t stream) {
  constexpr const char* kName = "logit pieces";
  if (args.rows == 0) return;
  check(kName, args);
  expect_aligned(kName, "logits", logits);
  expect_aligned(kName, "row stride", row_stride * static_cast<std::int64_t>(size_of(dtype)));
  if (row_stride < args.vocabulary)
    fail(kName, ": rows ", row_stride, " apart, expected at least the vocabulary's ", args.vocabulary);
  by_dtype(kName, dtype, [&]<class Element>() {
    const InMemoryArgs all = {args, logits, row_stride};
    if (args.rows < 8)
      launch_pieces<Element, 1>(all, stream);
    else
      launch_pieces<Element, 4>(all, stream);
  });
}

void run_scores(const LogitPiecesArgs& args, TokenScore* scores, std::int32_t* argmax, cudaStream_t stream) {
  constexpr const char* kName = "scores";
  if (args.rows == 0) return;
  check(kName, args);
  launch_overlapped(scores_kernel, kName, dim3(static_cast<unsigned>(args.rows)), dim3(kScoreThreads),
                    ScoreArgs{args, scores, argmax}, stream);
}

}  // namespace asynct::cuda
