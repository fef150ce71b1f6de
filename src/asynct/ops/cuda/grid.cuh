#pragma once

#include <cstdint>

// What happens between blocks and between kernels.
//
// Programmatic dependent launch came with sm_90; code for GPUs before it waits for nothing, and
// launch_overlapped() (launch.h) launches in order there.
namespace asynct::cuda {

/// Lets the next kernel of the stream begin where blocks of this one have left.
__device__ inline void launch_dependents() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns when the kernel before has ended and its writes are visible; at once in an ordinary launch.
__device__ inline void wait_for_launcher() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// What the thread wrote or saw before is visible to whoever reads the sum after; what others released is
/// visible here.
__device__ inline std::uint32_t fetch_add_acq_rel(std::uint32_t* counter, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
}

/// Adds without ordering anything.
__device__ inline void add_relaxed(std::uint64_t* counter, std::uint64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
}

}  // namespace asynct::cuda
