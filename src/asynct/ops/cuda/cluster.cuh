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

}  // namespace asynct::cuda
