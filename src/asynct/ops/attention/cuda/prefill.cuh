#pragma once

#include "asynct/ops/attention/cuda/prefill_copy.cuh"
#include "asynct/ops/attention/cuda/prefill_layout.cuh"
#include "asynct/ops/attention/cuda/prefill_rows.cuh"
#include "asynct/ops/cuda/copy_async.cuh"

// AsyncI prefill over a paged cache (sm_90a): many query rows a sequence, causal, bound by the matrix units.
//
// Floor: 4 D flops a visible (row, key) pair at the matrix rate.
//
// A block owns 128 query rows of one KV head (tokens times the heads of its group) and goes through their
// keys in tiles of 128: four producer warps ask the copy engine for tiles, two warpgroups of 64 rows
// multiply. They take turns to ask for products: while one turns scores into weights the other has the matrix
// units. Weights need no maximum and no rescaled sum; they stay in registers as the left operand of the
// second product, as the queries do of the first: shared memory, which shuffles also use, is what limits
// next.
//
// The copy engine permutes the keys of a page: row 8 j + 2 t + e of 16 holds key 4 t + 2 j + e, so a lane of
// a quad owns 4 consecutive keys and pooling takes pool_size - 1 shuffles for 16 keys. Values lie in the same
// order.
//
// Sums are decode's: a chunk in the accumulators, chunks of a span in shared memory, spans in global memory.
namespace asynct::cuda {

template <class Traits>
__device__ inline void prefill_block(const PrefillArgs& args, unsigned char* shared, PrefillShare share) {
  const PrefillLayout<Traits> layout = {(shared_address(shared) + 1023) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    tma_prefetch(args.query_map);
    tma_prefetch(args.key_map);
    tma_prefetch(args.value_map);
    layout.init_barriers();
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, thread / 128, 0);  // known to be the same in a warp
  if (group == Traits::kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const int warp = thread % 128 / 32;
    if (warp < 2)
      PrefillCopies<Traits, true>(args, layout, share, warp, thread % 32).run();
    else
      PrefillCopies<Traits, false>(args, layout, share, warp - 2, thread % 32).run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    PrefillRows<Traits>(args, layout, share, group, thread % 128).run();
  }
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArgs args) {
  extern __shared__ unsigned char shared[];
  prefill_block<Traits>(args, shared, {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)});
}

}  // namespace asynct::cuda
