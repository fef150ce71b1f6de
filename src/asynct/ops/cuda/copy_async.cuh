#pragma once

#include <cstdint>

// cp.async (sm_80 and later): 16 bytes from global to shared memory without a register in between. Groups are
// counted by thread: commit() closes one, wait<n>() returns when all but the n newest have arrived.
namespace asynct::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void copy_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Arrives at an mbarrier when all copies of this thread so far have come.
__device__ inline void copy_async_arrive(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <int kNewest>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

}  // namespace asynct::cuda
