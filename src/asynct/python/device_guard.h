#pragma once

#include "asynct/ops/cuda/device.h"

namespace asynct::extension {

/// Kernels are launched on the current device; the caller's is current again afterwards.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : before_(cuda::current_device()), changed_(device != before_) {
    if (changed_) cuda::check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_;
  bool changed_;
};

}  // namespace asynct::extension
