// What a product's epilogue does with sums is what the kernels do with products in memory, bit for bit.

#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/feed_forward/cuda/reglu.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"
#include "asynct/ops/residual/cuda/residual.h"

namespace asynct::cuda {
namespace {

/// Row and pair of outputs of a thread; sums [rows, outputs] are all there.
template <class Epilogue>
__global__ void epilogue_kernel(Epilogue to, const float* sums, int outputs) {
  const int row = blockIdx.x, n = 2 * threadIdx.x;
  const auto factors = load_factors(to, n);
  const auto before = load_before(to, row, n);
  store_outputs(to, row, n, sums[row * outputs + n], sums[row * outputs + n + 1], factors, before);
}

std::uint16_t* bits(const DeviceTensor& tensor) { return static_cast<std::uint16_t*>(tensor.data()); }

TEST(EpilogueOnDevice, reglu_is_that_of_products_in_memory) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {-2, -0.F, 0, 3, kPoison, kInfinity, -kInfinity, 1e-45F};
  std::vector<float> gate, up, sums;
  for (const float g : special)
    for (const float u : special) gate.push_back(g), up.push_back(u);
  for (std::size_t i = 0; i < gate.size(); ++i) sums.push_back(gate[i]), sums.push_back(up[i]);
  const auto neurons = static_cast<std::int32_t>(gate.size());
  const DeviceBuffer<float> device_sums(sums);
  const DeviceTensor gates(gate, DType::f32), ups(up, DType::f32);
  const DeviceTensor of_epilogue(gate.size(), DType::bf16), of_kernel(gate.size(), DType::bf16);
  epilogue_kernel<<<1, neurons>>>(StoreReglu{.out = bits(of_epilogue), .stride = neurons}, device_sums.data(),
                                  2 * neurons);
  run_reglu({.gate = gates.data(),
             .up = ups.data(),
             .out = of_kernel.data(),
             .input_stride = neurons,
             .out_stride = neurons,
             .rows = 1,
             .neurons = neurons},
            DType::bf16, DType::f32, nullptr);
  const std::vector<float> got = of_epilogue.values();
  expect_same(got, of_kernel.values(), "neurons");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (gate[i] <= 0)
      EXPECT_EQ(got[i], 0) << gate[i] << " " << up[i];  // the CPU does not read such an up
    else
      EXPECT_EQ(std::isnan(got[i]), std::isnan(gate[i] * up[i])) << gate[i] << " " << up[i];
}

TEST(EpilogueOnDevice, residual_is_that_of_products_in_memory) {
  std::mt19937 random(8);
  const std::int32_t rows = 50, size = 512;
  const auto count = static_cast<std::size_t>(rows * size);
  for (const bool has_post : {false, true})
    for (const bool has_beta : {false, true}) {
      const auto factors = [&] {
        return DeviceBuffer<float>(random_values(random, static_cast<std::size_t>(size), DType::f32));
      };
      const DeviceBuffer<float> alpha = factors(), gamma = factors(), beta = factors();
      std::vector<float> sums = random_values(random, count, DType::f32);
      sums[7] = kPoison, sums[8] = -0.F;
      const std::vector<float> before = random_values(random, count, DType::bf16);
      const DeviceTensor product(sums, DType::f32);
      const DeviceTensor a(before, DType::bf16), b(before, DType::bf16);
      const DeviceTensor next_a(count, DType::bf16), next_b(count, DType::bf16);
      const DyhtView view = {alpha.data(), gamma.data(), has_beta ? beta.data() : nullptr, -0.7F, 0.4F};
      DyhtParams params = {.alpha = {alpha.data(), true}, .gamma = {gamma.data(), true}};
      if (has_beta) params.beta = {beta.data(), true};
      params.low = view.low, params.high = view.high;
      epilogue_kernel<<<rows, size / 2>>>(
          AddResidual{bits(a), size, bits(next_a), size, has_post ? view : DyhtView{}, view},
          static_cast<const float*>(product.data()), size);
      run_residual({.product = product.data(),
                    .residual = b.data(),
                    .next_input = next_b.data(),
                    .product_stride = size,
                    .residual_stride = size,
                    .next_stride = size,
                    .rows = rows,
                    .size = size,
                    .has_post = has_post,
                    .post = params,
                    .next = params},
                   DType::bf16, DType::f32, nullptr);
      expect_same(a.values(), b.values(), "residual");
      expect_same(next_a.values(), next_b.values(), "next input");
    }
}

}  // namespace
}  // namespace asynct::cuda
