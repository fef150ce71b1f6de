#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

/// The device that this thread's calls go to.
inline int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// What a device has or can do. Asks the driver each time.
inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

/// Of a device; of the current one where none is named.
inline int multiprocessor_count(int device) {
  return device_attribute(cudaDevAttrMultiProcessorCount, device);
}
inline int multiprocessor_count() { return multiprocessor_count(current_device()); }

/// 10 times major plus minor.
inline int compute_capability(int device) {
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor, device) +
         device_attribute(cudaDevAttrComputeCapabilityMinor, device);
}

/// CudaError for a GPU that no kernel was compiled for.
inline void expect_capability(std::string_view name, int capability) {
  if (capability < 80)
    throw CudaError(
        cat(name, ": compute capability ", capability / 10, ".", capability % 10, ", expected 8.0 or more"));
}

/// Shared memory that a block of the current device can have when its kernel asks for it.
inline int most_shared_bytes() {
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device());
}

/// Lets `kernel` take that much shared memory and returns the current device's multiprocessors. Asks the
/// driver once a kernel and device: afterwards a launch is nothing but a launch.
template <auto kKernel>
int prepare(int shared_bytes) {
  static std::array<std::atomic<int>, 64> multiprocessors = {};
  const int device = current_device();
  if (device >= 64) fail("CUDA: device ", device, ", expected one of the first 64");
  std::atomic<int>& known = multiprocessors[static_cast<std::size_t>(device)];
  if (known.load() == 0) {
    const int count = multiprocessor_count(device);
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "cudaFuncSetAttribute");
    known.store(count);
  }
  return known.load();
}

}  // namespace asynct::cuda
