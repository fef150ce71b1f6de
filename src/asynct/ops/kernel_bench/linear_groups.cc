#include "asynct/ops/kernel_bench/linear_groups.h"

#include <memory>

#include "asynct/base/error.h"
#include "asynct/ops/kernel_bench/cublas_lt.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"
#include "asynct/ops/kernel_bench/tensor_group.h"
#include "asynct/ops/linear/cuda/linear.h"

namespace asynct::kernel_bench {
namespace {

constexpr std::size_t kWeight = 0;  // [outputs, inputs]
constexpr std::size_t kRows = 1;    // [rows, inputs]
constexpr std::size_t kOut = 2;     // [rows, outputs]

TensorKernel cublas_lt(const LinearShape& shape) {
  // Made by the first call, so that listing the groups loads nothing.
  const auto product = std::make_shared<Product>();
  return {.variant = "cuBLASLt",
          .floor = shape.floor(),
          .launch = [shape, product](const Tensors& tensors, cudaStream_t stream) {
            if (!*product) *product = make_product(shape.rows, shape.outputs, shape.inputs);
            if (!*product) fail("cuBLASLt: the library was not found");
            (*product)(tensors[kRows], tensors[kWeight], tensors[kOut], stream);
          }};
}

/// What the engine runs, rounded and stored.
TensorKernel ours(const LinearShape& shape) {
  return {.variant = "asynct",
          .floor = shape.floor(),
          .launch = [shape](const Tensors& tensors, cudaStream_t stream) {
            using namespace cuda;
            const LinearWeight weight =
                make_linear_weight(tensors[kWeight], shape.outputs, shape.inputs, shape.inputs);
            const LinearInput rows =
                make_linear_input(tensors[kRows], shape.rows, shape.inputs, shape.inputs);
            run_linear(weight, rows, shape.rows, StoreBf16{.out = tensors[kOut], .stride = shape.outputs},
                       stream);
          }};
}

LazyGroup linear_group(const LinearShape& shape, double cache_bytes) {
  const auto count = [](std::int32_t a, std::int32_t b) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
  };
  const std::size_t weights = count(shape.outputs, shape.inputs);
  std::vector<TensorKernel> kernels = {ours(shape), cublas_lt(shape)};
  for (int setting = 0; setting < kReadSettings; ++setting)
    kernels.push_back({.variant = "read weights",
                       .floor = {.bytes = 2.0 * static_cast<double>(weights)},
                       .launch = [setting, weights](const Tensors& tensors, cudaStream_t stream) {
                         run_read(setting, {tensors[kWeight], 2 * weights}, {}, nullptr, stream);
                       }});
  return tensor_group("linear", shape.text(),
                      {weights, count(shape.rows, shape.inputs), count(shape.rows, shape.outputs)},
                      std::move(kernels), cache_bytes);
}

}  // namespace

std::vector<LazyGroup> linear_groups(const KernelBenchOptions& options, double cache_bytes) {
  std::vector<LazyGroup> groups;
  for (const LinearShape& shape : options.linear) groups.push_back(linear_group(shape, cache_bytes));
  return groups;
}

}  // namespace asynct::kernel_bench
