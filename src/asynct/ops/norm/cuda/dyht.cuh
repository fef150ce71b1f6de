#pragma once

#include "asynct/ops/norm/cuda/channels.cuh"

namespace asynct::cuda {

/// Products and sums round one by one, as on the CPU: in float the results are equal bit for bit.
__device__ inline float dyht(float alpha, float beta, bool has_beta, float gamma, float low, float high,
                             float x) {
  float t = __fmul_rn(alpha, x);
  if (has_beta) t = __fadd_rn(t, beta);
  t = t < low ? low : t;  // comparisons, which leave NaN as it is
  t = t > high ? high : t;
  return __fmul_rn(gamma, t);
}

/// A DyHT's parameters of kCount consecutive channels, in registers.
template <int kCount>
class Dyht {
 public:
  __device__ Dyht(const DyhtParams& params, int first_channel)
      : low_(params.low), high_(params.high), has_beta_(params.beta.values != nullptr) {
    load_channels(params.alpha, first_channel, alpha_);
    load_channels(params.gamma, first_channel, gamma_);
    if (has_beta_) load_channels(params.beta, first_channel, beta_);
  }

  __device__ void apply(float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      x[i] = dyht(alpha_[i], beta_[i], has_beta_, gamma_[i], low_, high_, x[i]);
  }

 private:
  float alpha_[kCount], gamma_[kCount], beta_[kCount] = {};
  float low_, high_;
  bool has_beta_;
};

}  // namespace asynct::cuda
