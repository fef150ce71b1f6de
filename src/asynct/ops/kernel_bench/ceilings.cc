#include "asynct/ops/kernel_bench/ceilings.h"

#include <algorithm>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/kernel_bench/cublas_lt.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"

namespace asynct::kernel_bench {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr std::int64_t kProductSize = 8192;

/// Seconds of each variant; an error of any is the bench's.
std::vector<Result> run(const Group& group, const TimingOptions& options, const Nvml& nvml) {
  std::vector<Result> results = measure(group, options, nvml);
  for (const Result& result : results)
    if (!result.error.empty()) fail(result.variant, ": ", result.error);
  return results;
}

void measure_memory(Ceilings& ceilings, TimingOptions options, const Nvml& nvml) {
  options.sustained_seconds = 0;
  using Buffer = cuda::DeviceBuffer<char>;
  const auto from = std::make_shared<Buffer>(kBytes);
  const auto to = std::make_shared<Buffer>(kBytes);
  fill_normal(reinterpret_cast<std::uint16_t*>(from->data()), kBytes / 2, 1, nullptr);
  fill_normal(reinterpret_cast<std::uint16_t*>(to->data()), kBytes / 2, 2, nullptr);
  Group group = {.kernel = "ceiling", .sets = 1};
  for (int setting = 0; setting < kReadSettings; ++setting)
    group.candidates.push_back(
        {.variant = "read", .launch = [=](int, cudaStream_t stream) {
           run_read(setting, {from->data(), kBytes}, {to->data(), kBytes}, nullptr, stream);
         }});
  group.candidates.push_back({.variant = "copy", .launch = [=](int, cudaStream_t stream) {
                                run_copy({from->data(), kBytes}, to->data(), stream);
                              }});
  group.candidates.push_back(
      {.variant = "copy", .launch = [=](int, cudaStream_t stream) {
         cuda::check(cudaMemcpyAsync(to->data(), from->data(), kBytes, cudaMemcpyDeviceToDevice, stream),
                     "cudaMemcpyAsync");
       }});
  const auto word = std::make_shared<cuda::DeviceBuffer<std::uint32_t>>(1);
  group.candidates.push_back({.variant = "smallest", .launch = [=](int, cudaStream_t stream) {
                                run_smallest(word->data(), stream);
                              }});
  const std::vector<Result> results = run(group, options, nvml);
  ceilings.read_bytes = 2.0 * kBytes / results[0].bursts.seconds.median;
  ceilings.copy_bytes = 2.0 * kBytes / results[1].bursts.seconds.median;
  ceilings.launch_seconds = results[2].bursts.seconds.median;
}

void measure_product(Ceilings& ceilings, TimingOptions options, const Nvml& nvml) {
  const Product product = make_product(kProductSize, kProductSize, kProductSize);
  if (!product) return;
  options.sustained_seconds = std::max(options.sustained_seconds, 0.5);
  constexpr std::size_t kCount = kProductSize * kProductSize;
  using Buffer = cuda::DeviceBuffer<std::uint16_t>;
  const auto a = std::make_shared<Buffer>(kCount);
  const auto b = std::make_shared<Buffer>(kCount);
  const auto out = std::make_shared<Buffer>(kCount);
  fill_normal(a->data(), kCount, 1, nullptr);  // zeros would cost less power
  fill_normal(b->data(), kCount, 2, nullptr);
  Group group = {.kernel = "ceiling", .sets = 1};
  group.candidates.push_back({.variant = "product", .launch = [=](int, cudaStream_t stream) {
                                product(a->data(), b->data(), out->data(), stream);
                              }});
  const std::vector<Result> results = run(group, options, nvml);
  constexpr double kFlops = 2.0 * kProductSize * kProductSize * kProductSize;
  ceilings.product_flops = kFlops / results[0].bursts.seconds.median;
  ceilings.product_sustained = kFlops / results[0].sustained.seconds.median;
}

}  // namespace

Ceilings measure_ceilings(const TimingOptions& options, const Nvml& nvml) {
  Ceilings ceilings;
  measure_memory(ceilings, options, nvml);
  measure_product(ceilings, options, nvml);
  return ceilings;
}

}  // namespace asynct::kernel_bench
