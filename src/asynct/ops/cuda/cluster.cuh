#pragma once

#include <cstdint>

// Blocks of one cluster (sm_90) and each other's shared memory.
namespace asynct::cuda {

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Joins all threads of all blocks of the cluster; what they wrote to shared memory before is seen after.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

/// Where `address` of this block's shared memory lies in that of the block `rank`.
__device__ inline std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

/// Arrives at a barrier of another block, by cluster_address.
__device__ inline void cluster_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Writes two floats to another block, whose barrier counts their 8 bytes when they are there. Both addresses
/// by cluster_address of the same block.
__device__ inline void store_async(std::uint32_t to, float a, float b, std::uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
      "f"(a), "f"(b), "r"(barrier)
      : "memory");
}

}  // namespace asynct::cuda
