#pragma once

#include "asynct/ops/cuda/error.h"

namespace asynct::python {

/// Kernels are launched on the current device; the caller's is current again afterwards.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
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
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace asynct::python
