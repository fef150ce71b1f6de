#include "asynct/ops/attention/cuda/factors.h"

#include <algorithm>
#include <cmath>

#include "asynct/base/error.h"

namespace asynct::cuda {

float query_scale(const AttentionConfig& config, DType dtype) {
  if (!(config.scale > 0)) fail("attention_scale ", config.scale, ": the CUDA kernels expect it above 0");
  int exponent = 0;
  const bool exact = std::frexp(config.scale, &exponent) == 0.5F && std::abs(exponent) < 64;
  return exact && dtype == DType::bf16 ? config.scale : 1;
}

std::vector<HeadFactors> head_factors(const AttentionConfig& config, const AttentionHeadParams& params,
                                      float query_scale) {
  const auto of = [](const std::vector<float>& values, std::size_t head, float absent) {
    return values.empty() ? absent : values[head];
  };
  const float scale = config.scale / query_scale;
  std::vector<HeadFactors> factors;
  for (std::size_t head = 0; head < static_cast<std::size_t>(config.heads); ++head)
    factors.push_back({.slope = of(params.slope, head, 1) * scale,
                       .bias = of(params.bias, head, 0),
                       .sigma = of(params.sigma, head, 0) * scale / static_cast<float>(config.pool_size),
                       .gain = of(params.gain, head, 1)});
  return factors;
}

bool all_plain(const std::vector<HeadFactors>& factors) {
  return std::all_of(factors.begin(), factors.end(),
                     [](const HeadFactors& f) { return f.slope == 1 && f.bias == 0; });
}

}  // namespace asynct::cuda
