#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/decode_copy.cuh"
#include "asynct/ops/attention/cuda/decode_finish.cuh"
#include "asynct/ops/attention/cuda/decode_layout.cuh"
#include "asynct/ops/attention/cuda/decode_score.cuh"
#include "asynct/ops/attention/cuda/decode_sum.cuh"
#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"

// AsyncI decode over a paged cache (sm_90): few query rows, bound by the bytes of K and V.
//
// Floor: (K + V bytes) / read bandwidth; a key and KV head are 4 D bytes, once for all query heads of the
// group.
//
// A block owns a chunk of 1,024 keys of one KV head and streams it through rings of 64 keys in shared memory.
// Its warps have roles: some copy keys, some values, some turn the scores of 64 keys into weights
// (decode_layout.cuh has the numbers), which they leave in a third ring, four multiply weights and values,
// each its own columns, one takes the sums. So the sum of a chunk is made in the order of its keys and in one
// place, whatever runs beside, and no maximum nor rescaled sum joins the warps. Copies run ahead over the end
// of a unit: the memory is never waited for but at the start.
//
// Values that no query row of the group gives weight take no part: they are masked, and where `skip_values`
// asks for it not fetched. Then their copies begin when the weights of their 64 keys are known, while later
// keys stream on.
//
// A sequence of one chunk is written at once. Of longer ones each chunk's sum goes to `partial`; the last
// warp of a span to arrive adds the span's sums in order, the last of all spans those. Which one that is
// changes nothing.
namespace asynct::cuda {

template <class Traits>
__device__ void decode_block(const DecodeArgs& args, unsigned char* shared, int first, int stride) {
  const DecodeLayout<Traits> layout = {(shared_address(shared) + 1023) & ~1023u};
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    tma_prefetch(args.key_map);
    tma_prefetch(args.halo_map);
    layout.init_barriers(args.skip_values);
  }
  __syncthreads();
  const DecodeUnits units = {args, first, stride};
  constexpr int kFirstScore = kSumWarps;
  constexpr int kFirstValues = kFirstScore + Traits::kScoreWarps;
  constexpr int kFinish = kFirstValues + Traits::kValueCopyWarps;
  if (warp < kFirstScore)
    DecodeSums<Traits>(layout, warp, lane).run(units);
  else if (warp < kFirstValues)
    DecodeScores<Traits>(args, layout, warp - kFirstScore, lane).run(units);
  else if (warp < kFinish && args.skip_values)
    DecodeCopies<Traits>(args, layout, lane).template run_values<true>(units, warp - kFirstValues);
  else if (warp < kFinish)
    DecodeCopies<Traits>(args, layout, lane).template run_values<false>(units, warp - kFirstValues);
  else if (warp == kFinish)
    DecodeFinish<Traits>(args, layout, lane).run(units);
  else
    DecodeCopies<Traits>(args, layout, lane).run_keys(units, warp - kFinish - 1);
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeArgs args) {
  extern __shared__ unsigned char shared[];
  launch_dependents();
  decode_block<Traits>(args, shared, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

}  // namespace asynct::cuda
