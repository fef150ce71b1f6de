#include "asynct/ops/kernel_bench/kernel_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "asynct/base/error.h"
#include "asynct/base/strings.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/kernel_bench/attention_groups.h"
#include "asynct/ops/kernel_bench/ceilings.h"
#include "asynct/ops/kernel_bench/layer_groups.h"
#include "asynct/ops/kernel_bench/linear_groups.h"
#include "asynct/ops/kernel_bench/nvml.h"
#include "asynct/ops/kernel_bench/timer.h"

namespace asynct::kernel_bench {
namespace {

/// Every kernel of the program: a new one is a line here and a function that makes its groups.
using MakeGroups = std::vector<LazyGroup> (*)(const KernelBenchOptions& options, double cache_bytes);
constexpr std::array<MakeGroups, 5> kKernels = {decode_groups, prefill_groups, mixed_groups, linear_groups,
                                                layer_groups};

DeviceInfo device_info(const Nvml& nvml) {
  cudaDeviceProp properties = {};
  cuda::check(cudaGetDeviceProperties(&properties, cuda::current_device()), "cudaGetDeviceProperties");
  return {.name = properties.name,
          .multiprocessors = properties.multiProcessorCount,
          .cache_bytes = static_cast<double>(properties.l2CacheSize),
          .memory_bytes = static_cast<double>(properties.totalGlobalMem),
          .driver = nvml.driver_version(),
          .power_limit = nvml.power_limit()};
}

void check_device() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0)
    fail("bench kernels: no CUDA device (", cudaGetErrorString(status),
         "), expected one of compute capability 9.0");
  const int capability = cuda::compute_capability(cuda::current_device());
  if (capability != 90)
    fail("bench kernels: the device has compute capability ", capability / 10, ".", capability % 10,
         ", the kernels need 9.0");
}

TimingOptions timing_options(bool quick) {
  if (!quick) return {};
  return {.rounds = 9, .skipped = 2, .sustained_seconds = 0.1};
}

bool wanted(const std::string& filter, const LazyGroup& group) {
  return std::any_of(group.variants.begin(), group.variants.end(), [&](const std::string& variant) {
    return matches(filter, group.kernel, group.shape, variant);
  });
}

/// The group's results; where its inputs could not be made, that is the result.
std::vector<Result> run_group(const LazyGroup& lazy, const std::string& filter, const TimingOptions& timing,
                              const Nvml& nvml) {
  const auto is_left_out = [&](const std::string& variant) {
    return !matches(filter, lazy.kernel, lazy.shape, variant);
  };
  try {
    Group group = lazy.make();
    std::erase_if(group.candidates, [&](const Candidate& candidate) {
      const auto& known = lazy.variants;  // readers stay
      return std::find(known.begin(), known.end(), candidate.variant) != known.end() &&
             is_left_out(candidate.variant);
    });
    return measure(group, timing, nvml);
  } catch (const Error& error) {
    cudaGetLastError();  // a failed allocation does not fail what comes next
    std::vector<Result> results;
    for (const std::string& variant : lazy.variants)
      if (!is_left_out(variant))
        results.push_back(
            {.kernel = lazy.kernel, .shape = lazy.shape, .variant = variant, .error = error.what()});
    return results;
  }
}

}  // namespace

Report run_kernel_bench(const KernelBenchOptions& options,
                        const std::function<void(const std::string&)>& progress) {
  check_device();
  const Nvml nvml;
  const TimingOptions timing = timing_options(options.quick);
  Report report = {.device = device_info(nvml)};
  progress("ceilings of the card");
  report.ceilings = measure_ceilings(timing, nvml);
  for (const MakeGroups make_groups : kKernels)
    for (const LazyGroup& lazy : make_groups(options, report.device.cache_bytes)) {
      if (!wanted(options.filter, lazy)) continue;
      progress(cat(lazy.kernel, " ", lazy.shape));
      for (Result& result : run_group(lazy, options.filter, timing, nvml))
        report.results.push_back(std::move(result));
    }
  return report;
}

}  // namespace asynct::kernel_bench
