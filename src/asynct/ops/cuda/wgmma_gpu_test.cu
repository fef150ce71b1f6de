// Products of a warpgroup, all widths and both layouts of the right operand: small integers, so that sums are
// exact.

#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/ops/cuda/tile_testing.cuh"
#include "asynct/ops/cuda/wgmma.cuh"

namespace asynct::cuda {
namespace {

constexpr int kRows = 64;
constexpr int kDepth = 64;
constexpr int kMostColumns = 256;

/// Where an element lies in 128-byte rows with their 16-byte pieces swizzled.
__device__ int swizzled(int row, int column) { return 64 * row + (column ^ row % 8 * 8); }

/// out [64, N] = a [64, 64] x b: [N, 64], or [64, N] where it is transposed.
template <class Element, int kColumns, int kTransposeB, bool kFromRegisters>
__global__ void multiply(const std::uint16_t* a, const std::uint16_t* b, float* out) {
  __shared__ alignas(1024) std::uint16_t left[kRows * kDepth];
  __shared__ alignas(1024) std::uint16_t right[kMostColumns * kDepth];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kMostColumns * kDepth; i += 128) right[i] = 0xFFFF;
  __syncthreads();
  for (int i = thread; i < kRows * kDepth; i += 128) left[swizzled(i / kDepth, i % kDepth)] = a[i];
  for (int i = thread; i < kColumns * kDepth; i += 128) {
    if constexpr (kTransposeB) {
      const int column = i % kColumns;
      right[column / 64 * kDepth * 64 + swizzled(i / kColumns, column % 64)] = b[i];
    } else {
      right[swizzled(i / kDepth, i % kDepth)] = b[i];
    }
  }
  fence_async_shared();
  __syncthreads();

  const int row = thread / 32 * 16 + thread % 32 / 4;
  const int pair = 2 * (thread % 4);
  std::uint32_t fragments[kDepth / 16][4];
  for (int k = 0; k < kDepth / 16; ++k)
    for (int i = 0; i < 4; ++i)
      fragments[k][i] =
          *reinterpret_cast<const std::uint32_t*>(a + kDepth * (row + i % 2 * 8) + 16 * k + i / 2 * 8 + pair);
  float sum[kColumns / 2];
  for (float& value : sum) value = __int_as_float(-1);  // NaN: the first product overwrites
  const std::uint64_t left_operand = wgmma::operand(shared_address(left), 1024, 16);
  const std::uint64_t right_operand =
      wgmma::operand(shared_address(right), 1024, kTransposeB ? 128 * kDepth : 16);
  wgmma::fence();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k) {
    const std::uint64_t next_right = wgmma::advance(right_operand, kTransposeB ? 16 * 128 * k : 32 * k);
    if constexpr (kFromRegisters)
      wgmma::RegisterProduct<Element, kColumns, kTransposeB>::multiply(fragments[k], next_right, sum, k > 0);
    else
      wgmma::SharedProduct<kColumns, kTransposeB>::multiply(wgmma::advance(left_operand, 32 * k), next_right,
                                                            sum, k > 0);
  }
  wgmma::commit();
  wgmma::wait<0>();
  wgmma::touch(sum);
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i)
    out[(row + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + pair + i % 2] = sum[i];
}

std::vector<float> integers(std::mt19937& random, int count) {
  std::uniform_int_distribution<int> distribution(-8, 8);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

template <int kColumns, int kTransposeB, bool kFromRegisters, class Element = __nv_bfloat16>
void expect_product() {
  constexpr DType kDType = std::is_same_v<Element, __half> ? DType::f16 : DType::bf16;
  std::mt19937 random(kColumns + kTransposeB);
  const std::vector<float> a = integers(random, kRows * kDepth);
  const std::vector<float> b = integers(random, kColumns * kDepth);
  std::vector<float> want;
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t column = 0; column < kColumns; ++column) {
      double sum = 0;
      for (std::size_t k = 0; k < kDepth; ++k)
        sum += static_cast<double>(a[kDepth * row + k]) *
               static_cast<double>(b[kTransposeB ? kColumns * k + column : kDepth * column + k]);
      want.push_back(static_cast<float>(sum));
    }
  const DeviceTensor left(a, kDType), right(b, kDType), out(want.size(), DType::f32);
  multiply<Element, kColumns, kTransposeB, kFromRegisters>
      <<<1, 128>>>(static_cast<const std::uint16_t*>(left.data()),
                   static_cast<const std::uint16_t*>(right.data()), static_cast<float*>(out.data()));
  check_launch("multiply");
  expect_same(out.values(), want,
              std::to_string(kColumns) + " columns" + (kTransposeB ? ", transposed" : "") +
                  (kFromRegisters ? ", from registers" : ""));
}

template <int kTransposeB, int... kColumns>
void expect_shared_products() {
  (expect_product<kColumns, kTransposeB, false>(), ...);
}

TEST(TileWarpgroup, products_of_shared_operands) {
  expect_shared_products<0, 8, 16, 32, 64, 96, 128, 192, 256>();
}

TEST(TileWarpgroup, products_of_shared_operands_transposed) {
  expect_shared_products<1, 8, 16, 32, 64, 128, 256>();
}

TEST(TileWarpgroup, products_from_registers) {
  expect_product<64, 0, true>();
  expect_product<64, 1, true>();
  expect_product<128, 0, true>();
  expect_product<128, 1, true>();
  expect_product<64, 0, true, __half>();
  expect_product<64, 1, true, __half>();
  expect_product<128, 0, true, __half>();
  expect_product<128, 1, true, __half>();
}

}  // namespace
}  // namespace asynct::cuda
