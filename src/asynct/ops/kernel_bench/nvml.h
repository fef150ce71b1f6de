#pragma once

#include <string>

namespace asynct::kernel_bench {

/// Clock and power of the current CUDA device, by the driver's management library, which is looked for at run
/// time. Where it is absent everything is 0.
class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  struct Sample {
    double sm_mhz = 0;
    double watts = 0;
  };
  /// May be called by any thread.
  Sample sample() const;

  std::string driver_version() const;  // "unknown"
  double power_limit() const;          // W

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace asynct::kernel_bench
