#include "asynct/ops/attention/cuda/factors.h"

#include "asynct/base/error.h"

namespace asynct::cuda {

std::vector<HeadFactors> head_factors(const AttentionConfig& config, const AttentionHeadParams& params) {
  if (!(config.scale > 0)) fail("attention_scale ", config.scale, ": the CUDA kernels expect it above 0");
  const auto of = [](const std::vector<float>& values, std::size_t head, float absent) {
    return values.empty() ? absent : values[head];
  };
  std::vector<HeadFactors> factors;
  for (std::size_t head = 0; head < static_cast<std::size_t>(config.heads); ++head)
    factors.push_back(
        {.slope = of(params.slope, head, 1) * config.scale,
         .bias = of(params.bias, head, 0),
         .sigma = of(params.sigma, head, 0) * config.scale / static_cast<float>(config.pool_size),
         .gain = of(params.gain, head, 1)});
  return factors;
}

}  // namespace asynct::cuda
