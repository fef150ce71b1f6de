#pragma once

#include "asynct/ops/cuda/error.h"

namespace asynct::extension {

/// Kernels are launched on the current device, one of those that they were compiled for; the caller's is
/// current again afterwards. CudaError for an older one.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    expect_capability(device);
    cuda::check(cudaGetDevice(&before_), "cudaGetDevice");
    if (device != before_) cuda::check(cudaSetDevice(device), "cudaSetDevice");
    changed_ = device != before_;
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  static void expect_capability(int device) {
    int major = 0;
    int minor = 0;
    cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                "cudaDeviceGetAttribute");
    if (major >= 8) return;
    cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                "cudaDeviceGetAttribute");
    throw cuda::CudaError(
        cat("cuda:", device, ": compute capability ", major, ".", minor, ", expected 8.0 or more"));
  }

  int before_ = 0;
  bool changed_ = false;
};

}  // namespace asynct::extension
