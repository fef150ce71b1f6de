#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

/// Whether the current device's kernels may begin before the one before them has ended: from compute
/// capability 9.0 on. Asks the driver once a device.
inline bool launches_overlap() {
  static std::array<std::atomic<int>, 64> known = {};  // major
  const int device = current_device();
  if (device >= 64) fail("CUDA: device ", device, ", expected one of the first 64");
  std::atomic<int>& major = known[static_cast<std::size_t>(device)];
  if (major.load() == 0) major.store(device_attribute(cudaDevAttrComputeCapabilityMajor, device));
  return major.load() >= 9;
}

/// Launches `kernel` so that it may begin while the kernel before it ends: it must call wait_for_launcher
/// (grid.cuh) in every block, before it reads or writes what an earlier kernel touches. Such kernels have no
/// PTX for GPUs before sm_90, which would let a later GPU run one that does not wait.
template <class Args>
void launch_overlapped(void (*kernel)(Args), const char* name, dim3 grid, dim3 block, const Args& args,
                       cudaStream_t stream, int shared_bytes = 0) {
  cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {.gridDim = grid,
                                     .blockDim = block,
                                     .dynamicSmemBytes = static_cast<std::size_t>(shared_bytes),
                                     .stream = stream,
                                     .attrs = &overlap,
                                     .numAttrs = launches_overlap() ? 1U : 0U};
  check(cudaLaunchKernelEx(&config, kernel, args), name);
}

}  // namespace asynct::cuda
