#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

/// Lets `kernel` take that much shared memory and returns the current device's multiprocessors. Asks the
/// driver once a kernel and device: afterwards a launch is nothing but a launch.
template <auto kKernel>
int prepare(int shared_bytes) {
  static std::array<std::atomic<int>, 64> multiprocessors = {};
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (device >= 64) fail("CUDA: device ", device, ", expected one of the first 64");
  std::atomic<int>& known = multiprocessors[static_cast<std::size_t>(device)];
  if (known.load() == 0) {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
          "cudaFuncSetAttribute");
    known.store(count);
  }
  return known.load();
}

/// Shared memory that a block of the current device can have when its kernel asks for it.
inline int most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return bytes;
}

}  // namespace asynct::cuda
