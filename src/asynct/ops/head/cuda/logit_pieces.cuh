#pragma once

#include "asynct/ops/head/cuda/logit_key.cuh"
#include "asynct/ops/head/cuda/policy.h"
#include "asynct/ops/head/cuda/score.h"

// What a kernel that has logits in registers keeps of them, so that they need no memory: the largest of each
// piece, the sum of exponentials, and the logits of the targets.
//
// The sum is an integer, hence the same in any order: a product may deal a piece out to threads as it likes,
// with 1 row or 256. A term is exp(logit - largest) to 2^-24; the terms of a piece can be off by 4e-6 of its
// largest probability together, were all of them rounded one way.
namespace asynct::cuda {

/// exp(logit - largest) in units of 2^-23: a float in [1, 2) has that many in its last bits. largest is the
/// piece's, finite; what comes of others is not read.
__device__ inline std::uint32_t exp_units(float logit, float largest) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"((logit - largest) * 1.442695041F));
  return __float_as_uint(e + 1.F) - __float_as_uint(1.F);
}

/// NaN where one is NaN.
__device__ inline float larger(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}

/// A piece of a row that kLanes neighbouring lanes hold, each kCount consecutive tokens; called by whole
/// warps, in which kLanes may hold different pieces. Tokens beyond the vocabulary are passed over; `piece`
/// too, when all of it lies there.
template <int kLanes, int kCount>
__device__ inline void keep_piece(const LogitPiecesArgs& args, std::int64_t row, int piece,
                                  const float (&logits)[kCount]) {
  static_assert(kLanes * kCount == kPieceTokens);
  const int lane = threadIdx.x % kLanes;
  const int first = piece * kPieceTokens + lane * kCount;
  const int count = min(kCount, args.vocabulary - first);
  float most = -INFINITY;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) most = larger(most, logits[i]);
  const float mine = most;
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) most = larger(most, __shfl_xor_sync(~0u, most, step));
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < count) sum += exp_units(logits[i], most);
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  // The first lane that has the largest says which token it is; of a NaN nobody asks.
  const int group = static_cast<int>(threadIdx.x % 32) / kLanes * kLanes;
  const std::uint32_t hits = __ballot_sync(~0u, count > 0 && !(mine < most)) >> group;
  const int pieces = pieces_of(args.vocabulary);
  if (piece < pieces && lane == __ffs(static_cast<int>(hits)) - 1) {
    int at = 0;
#pragma unroll
    for (int i = kCount - 1; i >= 0; --i)
      if (i < count && logits[i] == most) at = i;
    args.pieces[row * pieces + piece] = {logit_key(most, first + at), sum, 0};
  }
  if (args.first_target == nullptr) return;
  for (int i = args.first_target[row]; i < args.first_target[row + 1]; ++i) {
    const int wanted = args.targets[i].token - first;
    if (wanted < 0 || wanted >= count) continue;
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      if (j == wanted) args.target_logits[i] = logits[j];
  }
}

}  // namespace asynct::cuda
