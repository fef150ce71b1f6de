#include "asynct/ops/attention/cuda/factors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "asynct/base/error.h"

namespace asynct::cuda {
namespace {

/// 1 / scale is a number of the type, and so are weights that were divided by it: fp16 has few exponents.
bool divides_exactly(float scale, DType dtype) {
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5F) return false;
  return dtype == DType::bf16 ? std::abs(exponent) < 64 : exponent > -15 && exponent <= 1;
}

bool all_equal(const std::vector<float>& values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
}

}  // namespace

float pool_floor(bool pool_relu) { return pool_relu ? 0 : -std::numeric_limits<float>::infinity(); }

AttentionFactors attention_factors(const AttentionConfig& config, const AttentionHeadParams& params,
                                   DType dtype) {
  if (!(config.scale > 0)) fail("attention_scale ", config.scale, ": the CUDA kernels expect it above 0");
  const bool plain =
      divides_exactly(config.scale, dtype) && all_equal(params.slope, 1) && all_equal(params.bias, 0);
  AttentionFactors factors;
  factors.form = {
      .pool_floor = pool_floor(config.pool_relu), .most = plain ? 1 / config.scale : 1, .plain = plain};
  const auto of = [](const std::vector<float>& values, std::size_t head, float absent) {
    return values.empty() ? absent : values[head];
  };
  const float scale = plain ? 1 : config.scale;
  for (std::size_t head = 0; head < static_cast<std::size_t>(config.heads); ++head)
    factors.heads.push_back(
        {.slope = of(params.slope, head, 1) * scale,
         .bias = of(params.bias, head, 0),
         .sigma = of(params.sigma, head, 0) * scale / static_cast<float>(config.pool_size),
         .gain = of(params.gain, head, 1) * (plain ? config.scale : 1)});
  return factors;
}

AttentionFactors softmax_factors(const AttentionConfig& config) {
  if (!(config.scale > 0)) fail("attention_scale ", config.scale, ": the CUDA kernels expect it above 0");
  constexpr float kLog2E = 1.44269504F;
  const HeadFactors head = {.slope = config.scale * kLog2E, .bias = 0, .sigma = 0, .gain = 1};
  return {.heads = std::vector<HeadFactors>(static_cast<std::size_t>(config.heads), head),
          .form = {.plain = true}};
}

}  // namespace asynct::cuda
