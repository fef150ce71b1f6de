#include "asynct/ops/kernel_bench/tensor_group.h"

#include <memory>
#include <numeric>
#include <utility>

#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"

namespace asynct::kernel_bench {
namespace {

struct TensorSets {
  TensorSets(const std::vector<std::size_t>& sizes, int count) {
    std::uint32_t seed = 0;
    for (int set = 0; set < count; ++set) {
      Tensors tensors;
      for (const std::size_t size : sizes) {
        buffers.emplace_back(size);
        fill_normal(buffers.back().data(), size, ++seed, nullptr);
        tensors.push_back(buffers.back().data());
      }
      sets.push_back(std::move(tensors));
    }
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  std::vector<cuda::DeviceBuffer<std::uint16_t>> buffers;
  std::vector<Tensors> sets;
};

}  // namespace

LazyGroup tensor_group(std::string kernel, std::string shape, std::vector<std::size_t> sizes,
                       std::vector<TensorKernel> kernels, double cache_bytes) {
  LazyGroup lazy = {.kernel = kernel, .shape = shape};
  for (const TensorKernel& entry : kernels) lazy.variants.push_back(entry.variant);
  lazy.make = [kernel = std::move(kernel), shape = std::move(shape), sizes = std::move(sizes),
               kernels = std::move(kernels), cache_bytes] {
    const double bytes =
        2.0 * static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    Group group = {.kernel = kernel, .shape = shape, .sets = rotating_sets(bytes, cache_bytes)};
    const auto tensors = std::make_shared<TensorSets>(sizes, group.sets);
    for (const TensorKernel& entry : kernels)
      group.candidates.push_back({.variant = entry.variant,
                                  .floor = entry.floor,
                                  .launch = [tensors, launch = entry.launch](int set, cudaStream_t stream) {
                                    launch(tensors->sets[static_cast<std::size_t>(set)], stream);
                                  }});
    return group;
  };
  return lazy;
}

}  // namespace asynct::kernel_bench
