#include "asynct/ops/kernel_bench/nvml.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::kernel_bench {
namespace {

// The library's interface, as far as it is used: every function returns 0 on success.
constexpr unsigned kSmClock = 1;

/// Calls a function of the library; false when it is not there or fails.
template <class... Parameters, class... Arguments>
bool call(void* library, const char* name, int (*)(Parameters...), Arguments... arguments) {
  void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) return false;
  return reinterpret_cast<int (*)(Parameters...)>(symbol)(arguments...) == 0;
}

template <class... Parameters>
constexpr int (*kTakes)(Parameters...) = nullptr;

}  // namespace

Nvml::Nvml() {
  std::array<char, 32> bus = {};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), cuda::current_device()),
              "cudaDeviceGetPCIBusId");
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (call(library_, "nvmlInit_v2", kTakes<>) &&
      call(library_, "nvmlDeviceGetHandleByPciBusId_v2", kTakes<const char*, void**>,
           static_cast<const char*>(bus.data()), &device_))
    return;
  device_ = nullptr;
}

Nvml::~Nvml() {
  call(library_, "nvmlShutdown", kTakes<>);
  if (library_ != nullptr) dlclose(library_);
}

Nvml::Sample Nvml::sample() const {
  if (device_ == nullptr) return {};
  unsigned mhz = 0;
  unsigned milliwatts = 0;
  call(library_, "nvmlDeviceGetClockInfo", kTakes<void*, unsigned, unsigned*>, device_, kSmClock, &mhz);
  call(library_, "nvmlDeviceGetPowerUsage", kTakes<void*, unsigned*>, device_, &milliwatts);
  return {.sm_mhz = static_cast<double>(mhz), .watts = milliwatts / 1e3};
}

std::string Nvml::driver_version() const {
  std::array<char, 96> version = {};
  const bool known = call(library_, "nvmlSystemGetDriverVersion", kTakes<char*, unsigned>, version.data(),
                          static_cast<unsigned>(version.size()));
  return known ? version.data() : "unknown";
}

double Nvml::power_limit() const {
  unsigned milliwatts = 0;
  if (device_ == nullptr) return 0;
  call(library_, "nvmlDeviceGetEnforcedPowerLimit", kTakes<void*, unsigned*>, device_, &milliwatts);
  return milliwatts / 1e3;
}

}  // namespace asynct::kernel_bench
