#pragma once

#include <cstdint>

// Blocks of one cluster (sm_90) and each other's shared memory.
namespace asynct::cuda {

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Says that this thread is here, resp. waits until all threads of all blocks of the cluster have said so. In
/// between a block's memory may still be used by the others. Orders nothing but initialized barriers
/// (barrier_init_fence): a release would wait for all of the thread's memory traffic.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/// Where `address` of this block's shared memory lies in that of the block `rank`.
__device__ inline std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

/// Arrives at a barrier of another block, by cluster_address. Releases to this block only: enough for who
/// waits to overwrite what this one has read.
__device__ inline void barrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Copies `bytes`, a multiple of 16, to another block, whose barrier counts them when they are there; `to`
/// and `barrier` by cluster_address. What threads wrote needs fence_async_shared and a barrier before.
__device__ inline void copy_to_block(std::uint32_t to, std::uint32_t from, std::uint32_t bytes,
                                     std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace asynct::cuda
