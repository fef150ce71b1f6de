#pragma once

#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/norm/cuda/args.h"

namespace asynct::cuda {

/// A DyHT's parameters of kCount consecutive channels, in registers. Products and sums round one by one, as
/// on the CPU: in float the results are equal bit for bit.
template <int kCount>
class Dyht {
 public:
  __device__ Dyht(const DyhtParams& params, int first_channel)
      : low_(params.low), high_(params.high), has_beta_(params.beta.values != nullptr) {
    load(params.alpha, first_channel, alpha_);
    load(params.gamma, first_channel, gamma_);
    if (has_beta_) load(params.beta, first_channel, beta_);
  }

  __device__ void apply(float (&x)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float t = __fmul_rn(alpha_[i], x[i]);
      if (has_beta_) t = __fadd_rn(t, beta_[i]);
      t = t < low_ ? low_ : t;  // comparisons, which leave NaN as it is
      t = t > high_ ? high_ : t;
      x[i] = __fmul_rn(gamma_[i], t);
    }
  }

 private:
  static __device__ void load(const ChannelParam& param, int first, float (&to)[kCount]) {
    if (param.per_channel) {
      load_vector(param.values + first, to);
    } else {
      const float value = __ldg(param.values);
#pragma unroll
      for (int i = 0; i < kCount; ++i) to[i] = value;
    }
  }

  float alpha_[kCount], gamma_[kCount], beta_[kCount] = {};
  float low_, high_;
  bool has_beta_;
};

}  // namespace asynct::cuda
