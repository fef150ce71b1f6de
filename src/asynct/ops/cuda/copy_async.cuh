#pragma once

#include <cstdint>

// cp.async (sm_80 and later): 16 bytes from global to shared memory without a register in between. Groups are
// counted by thread: commit() closes one, wait<n>() returns when all but the n newest have arrived.
namespace asynct::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Reads nothing and writes zeros where `wanted` is false; `from` must be 16-byte aligned even then.
__device__ inline void copy_async_16(std::uint32_t to, const void* from, bool wanted) {
  const std::uint32_t bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kNewest>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

}  // namespace asynct::cuda
