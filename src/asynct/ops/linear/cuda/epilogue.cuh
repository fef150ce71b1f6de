#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/feed_forward/cuda/reglu.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/norm/cuda/dyht.cuh"

// What becomes of a product's sums, two adjacent outputs of a row at a time, n even. Two kinds of operands
// are read ahead: load_factors() weights, at any time, load_before() what kernels before have written, when
// they have ended.
namespace asynct::cuda {

struct Nothing {};

template <class Epilogue>
__device__ inline Nothing load_factors(const Epilogue&, int) {
  return {};
}
template <class Epilogue>
__device__ inline Nothing load_before(const Epilogue&, int, int) {
  return {};
}

__device__ inline void store_outputs(const StoreBf16& to, int row, int n, float a, float b, Nothing,
                                     Nothing) {
  *reinterpret_cast<std::uint32_t*>(to.out + row * to.stride + n) = pack<__nv_bfloat16>(a, b);
}

__device__ inline void store_outputs(const StoreFloat& to, int row, int n, float a, float b, Nothing,
                                     Nothing) {
  *reinterpret_cast<float2*>(to.out + row * to.stride + n) = {a, b};
}

__device__ inline std::uint16_t rounded_reglu(float gate, float up) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(reglu(gate, up)));
}
__device__ inline void store_outputs(const StoreReglu& to, int row, int n, float gate, float up, Nothing,
                                     Nothing) {
  to.out[row * to.stride + n / 2] = rounded_reglu(gate, up);
}

struct DyhtFactors {
  float2 alpha, gamma, beta;
};

__device__ inline DyhtFactors load_dyht(const DyhtView& norm, int n) {
  const auto pair = [n](const float* from) { return __ldg(reinterpret_cast<const float2*>(from + n)); };
  if (norm.alpha == nullptr) return {};
  return {pair(norm.alpha), pair(norm.gamma), norm.beta == nullptr ? float2{0, 0} : pair(norm.beta)};
}

__device__ inline float2 apply_dyht(const DyhtView& norm, const DyhtFactors& f, float2 x) {
  if (norm.alpha == nullptr) return x;
  const auto apply = [&norm](float alpha, float beta, float gamma, float value) {
    return dyht(alpha, beta, norm.beta != nullptr, gamma, norm.low, norm.high, value);
  };
  return {apply(f.alpha.x, f.beta.x, f.gamma.x, x.x), apply(f.alpha.y, f.beta.y, f.gamma.y, x.y)};
}

struct ResidualFactors {
  DyhtFactors post, next;
};

__device__ inline ResidualFactors load_factors(const AddResidual& to, int n) {
  ResidualFactors factors = {load_dyht(to.post, n), {}};
  if (to.next_input != nullptr) factors.next = load_dyht(to.next, n);
  return factors;
}
__device__ inline float2 load_before(const AddResidual& to, int row, int n) {
  return unpack<__nv_bfloat16>(
      __ldcg(reinterpret_cast<const unsigned*>(to.residual + row * to.residual_stride + n)));
}
/// The new residual of two outputs.
__device__ inline std::uint32_t add_to(const AddResidual& to, float a, float b, const DyhtFactors& post,
                                       float2 before) {
  const float2 added = apply_dyht(to.post, post, {a, b});
  return pack<__nv_bfloat16>(__fadd_rn(before.x, added.x), __fadd_rn(before.y, added.y));
}
/// The next input where the residual is `sum`.
__device__ inline std::uint32_t next_of(const AddResidual& to, std::uint32_t sum,
                                        const DyhtFactors& factors) {
  const float2 next = apply_dyht(to.next, factors, unpack<__nv_bfloat16>(sum));
  return pack<__nv_bfloat16>(next.x, next.y);
}
__device__ inline void store_outputs(const AddResidual& to, int row, int n, float a, float b,
                                     const ResidualFactors& factors, float2 before) {
  const std::uint32_t sum = add_to(to, a, b, factors.post, before);
  *reinterpret_cast<std::uint32_t*>(to.residual + row * to.residual_stride + n) = sum;
  if (to.next_input == nullptr) return;
  *reinterpret_cast<std::uint32_t*>(to.next_input + row * to.next_stride + n) =
      next_of(to, sum, factors.next);
}

}  // namespace asynct::cuda
