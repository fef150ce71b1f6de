#pragma once

#include <cuda.h>

#include <cstdint>

// Copies by the tensor memory accelerator (sm_90), issued by one thread. `to` is in shared memory, aligned to
// 128 bytes, to 1,024 where the map swizzles; the barrier counts the bytes of the whole box, rows outside of
// the tensor included, which become zeros.
namespace asynct::cuda {

__device__ inline void tma_prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ inline void tma_load(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier, int c0,
                                int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6, %7}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// To the same place in all blocks of the cluster whose bits are set in `blocks`; each one's own barrier at
/// that place counts the bytes. For kernels to come (docs/notes/hopper-linear.md, the input of products).
__device__ inline void tma_load_multicast(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                          std::uint16_t blocks, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace asynct::cuda
