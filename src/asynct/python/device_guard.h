#pragma once

#include <string_view>

#include "asynct/ops/cuda/error.h"

namespace asynct::extension {

/// CudaError for a GPU that no kernel was compiled for.
inline void expect_capability(std::string_view name, int major, int minor) {
  if (major < 8)
    throw cuda::CudaError(cat(name, ": compute capability ", major, ".", minor, ", expected 8.0 or more"));
}

/// Kernels are launched on the current device, one of those that they were compiled for; the caller's is
/// current again afterwards. CudaError for an older one.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check_capability(device);
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
  static void check_capability(int device) {
    int major = 0;
    int minor = 0;
    cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                "cudaDeviceGetAttribute");
    cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                "cudaDeviceGetAttribute");
    expect_capability(cat("cuda:", device), major, minor);
  }

  int before_ = 0;
  bool changed_ = false;
};

}  // namespace asynct::extension
