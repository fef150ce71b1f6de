#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/linear/cuda/args.h"

// What becomes of a product's sums, two adjacent outputs of a row at a time, n even. load_before() reads what
// they will be combined with: long before store_outputs() if need be, but not before the kernel's launcher
// has ended.
namespace asynct::cuda {

struct Nothing {};

__device__ inline Nothing load_before(const StoreBf16&, int, int) { return {}; }
__device__ inline void store_outputs(const StoreBf16& to, int row, int n, float a, float b, Nothing) {
  *reinterpret_cast<std::uint32_t*>(to.out + row * to.stride + n) = pack<__nv_bfloat16>(a, b);
}

__device__ inline Nothing load_before(const StoreFloat&, int, int) { return {}; }
__device__ inline void store_outputs(const StoreFloat& to, int row, int n, float a, float b, Nothing) {
  *reinterpret_cast<float2*>(to.out + row * to.stride + n) = {a, b};
}

__device__ inline Nothing load_before(const StoreReglu&, int, int) { return {}; }
__device__ inline void store_outputs(const StoreReglu& to, int row, int n, float gate, float up, Nothing) {
  const float product = (gate < 0 ? 0.F : gate) * up;  // a NaN gate stays
  to.out[row * to.stride + n / 2] = __bfloat16_as_ushort(__float2bfloat16_rn(product));
}

__device__ inline float dyht(const DyhtView& norm, float alpha, float beta, float gamma, float x) {
  const float t = __fadd_rn(__fmul_rn(alpha, x), beta);
  return gamma * (t < norm.low ? norm.low : t > norm.high ? norm.high : t);
}

__device__ inline float2 dyht(const DyhtView& norm, int n, float2 x) {
  if (norm.alpha == nullptr) return x;
  const float2 alpha = *reinterpret_cast<const float2*>(norm.alpha + n);
  const float2 gamma = *reinterpret_cast<const float2*>(norm.gamma + n);
  const float2 beta = norm.beta == nullptr ? float2{0, 0} : *reinterpret_cast<const float2*>(norm.beta + n);
  return {dyht(norm, alpha.x, beta.x, gamma.x, x.x), dyht(norm, alpha.y, beta.y, gamma.y, x.y)};
}

__device__ inline float2 widen(std::uint32_t packed) {
  return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000U)};
}

__device__ inline float2 load_before(const AddResidual& to, int row, int n) {
  return widen(*reinterpret_cast<const std::uint32_t*>(to.residual + row * to.residual_stride + n));
}
__device__ inline void store_outputs(const AddResidual& to, int row, int n, float a, float b, float2 before) {
  const float2 added = dyht(to.post, n, {a, b});
  const std::uint32_t sum = pack<__nv_bfloat16>(before.x + added.x, before.y + added.y);
  *reinterpret_cast<std::uint32_t*>(to.residual + row * to.residual_stride + n) = sum;
  if (to.next_input == nullptr) return;
  const float2 next = dyht(to.next, n, widen(sum));
  *reinterpret_cast<std::uint32_t*>(to.next_input + row * to.next_stride + n) =
      pack<__nv_bfloat16>(next.x, next.y);
}

}  // namespace asynct::cuda
