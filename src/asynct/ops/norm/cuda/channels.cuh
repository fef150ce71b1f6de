#pragma once

#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/norm/cuda/args.h"

namespace asynct::cuda {

/// A parameter of kCount consecutive channels.
template <int kCount>
__device__ inline void load_channels(const ChannelParam& param, int first, float (&to)[kCount]) {
  if (param.per_channel) {
    load_vector(param.values + first, to);
  } else {
    const float value = __ldg(param.values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = value;
  }
}

}  // namespace asynct::cuda
