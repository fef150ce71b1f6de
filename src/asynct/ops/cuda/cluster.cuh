#pragma once

#include <cstdint>

// Blocks of a cluster (sm_90): they run at the same time and reach each other's shared memory.
namespace asynct::cuda {

/// Joins all threads of the cluster, in two steps; what they wrote before the first, in any shared memory, is
/// visible after the second. A block's memory is there once the block has arrived for the first time.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/// Where block `rank` of the cluster has what this block has at `shared`. Loads, stores and atomics may use
/// it, until that block ends.
template <class T>
__device__ inline T* in_block(T* shared, int rank) {
  T* mapped;
  asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(shared), "r"(rank));
  return mapped;
}

__device__ inline std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// As cluster_arrive(), for all threads of a warp at once. Orders nothing but initialized barriers
/// (barrier_init_fence): a release would wait for all of the thread's memory traffic.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// Where `address` of this block's shared memory lies in that of the block `rank`.
__device__ inline std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

/// Arrives at a barrier of another block, by cluster_address. Releases to this block only: enough for who
/// waits to overwrite what this one has read. With tma_load_multicast (tma.cuh) what a ring that several
/// blocks fill together takes; no kernel has one yet, the tests hold both to what they say.
__device__ inline void barrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Copies `bytes`, a multiple of 16, to another block, whose barrier counts them when they are there; `to`
/// and `barrier` by cluster_address. What threads wrote needs fence_async_shared and a barrier before. A copy
/// to the own block would arrive too, but compute-sanitizer calls it an error.
__device__ inline void copy_to_block(std::uint32_t to, std::uint32_t from, std::uint32_t bytes,
                                     std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace asynct::cuda
