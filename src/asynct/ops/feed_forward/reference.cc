#include "asynct/ops/feed_forward/reference.h"

#include <cmath>

namespace asynct::feed_forward {
namespace {

double dot(const float* x, const TensorView& weight, std::int64_t row) {
  double sum = 0;
  for (std::int64_t k = 0; k < weight.shape[1]; ++k)
    sum += double{x[k]} * weight.at(row * weight.shape[1] + k);
  return sum;
}

double activate(double gate, Activation activation) {
  if (activation == Activation::silu) return gate / (1 + std::exp(-gate));
  return gate <= 0 ? 0 : gate;  // NaN stays
}

}  // namespace

std::vector<double> reference(ConstMatrix x, const FeedForwardWeights& weights, Activation activation,
                              bool rounded) {
  const std::int64_t neurons = weights.gate.shape[0];
  std::vector<double> y;
  std::vector<double> inner(static_cast<std::size_t>(neurons));
  for (std::int64_t m = 0; m < x.rows; ++m) {
    for (std::int64_t f = 0; f < neurons; ++f) {
      double& h = inner[static_cast<std::size_t>(f)];
      h = activate(dot(x.row(m), weights.gate, f), activation) * dot(x.row(m), weights.up, f);
      if (rounded) h = round_to_bf16(static_cast<float>(h));
    }
    for (std::int64_t n = 0; n < x.cols; ++n) {
      double sum = 0;
      for (std::int64_t f = 0; f < neurons; ++f)
        sum += inner[static_cast<std::size_t>(f)] * weights.down.at(n * neurons + f);
      y.push_back(sum);
    }
  }
  return y;
}

}  // namespace asynct::feed_forward
