#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <type_traits>

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

/// Blocks, threads and shared memory of a launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  int shared_bytes = 0;
  int cluster = 1;  // blocks of a cluster, side by side in x
};

/// Launches `kernel` so that it may begin while the kernel before it ends: it must call wait_for_launcher
/// (grid.cuh) in every block, before it reads or writes what an earlier kernel touches. Such kernels have no
/// PTX for GPUs before sm_90, which would let a later GPU run one that does not wait.
template <class... Args>
void launch_overlapped(void (*kernel)(Args...), const char* name, const LaunchShape& shape,
                       cudaStream_t stream, const std::type_identity_t<Args>&... args) {
  std::array<cudaLaunchAttribute, 2> attributes = {};
  unsigned count = 0;
  if (launches_overlap()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  const cudaLaunchConfig_t config = {.gridDim = shape.grid,
                                     .blockDim = shape.block,
                                     .dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes),
                                     .stream = stream,
                                     .attrs = attributes.data(),
                                     .numAttrs = count};
  check(cudaLaunchKernelEx(&config, kernel, args...), name);
}

/// The same for a kernel that takes all in one struct.
template <class Args>
void launch_overlapped(void (*kernel)(Args), const char* name, dim3 grid, dim3 block, const Args& args,
                       cudaStream_t stream, int shared_bytes = 0) {
  launch_overlapped(kernel, name, {.grid = grid, .block = block, .shared_bytes = shared_bytes}, stream, args);
}

}  // namespace asynct::cuda
