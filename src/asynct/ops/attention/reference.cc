#include "asynct/ops/attention/reference.h"

#include <algorithm>
#include <cmath>

namespace asynct {
namespace {

double factor(const std::vector<float>& values, std::size_t head, double absent) {
  return values.empty() ? absent : values[head];
}

/// A_j for the keys j = 0 .. scores.size() - 1, all of them visible.
std::vector<double> asynci_weights(const AttentionConfig& config, const AttentionHeadParams& params,
                                   std::size_t head, const std::vector<double>& scores) {
  std::vector<double> weights(scores.size());
  const auto taps = static_cast<std::size_t>(config.pool_size);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    double pooled = 0;
    for (std::size_t lag = 0; lag < taps && lag <= j; ++lag)
      pooled += config.pool_relu ? std::max(scores[j - lag], 0.0) : scores[j - lag];
    pooled /= config.pool_size;
    const double inhibited = factor(params.slope, head, 1) * scores[j] + factor(params.bias, head, 0) -
                             factor(params.sigma, head, 0) * pooled;
    weights[j] = factor(params.gain, head, 1) * std::clamp(inhibited, 0.0, 1.0);
  }
  return weights;
}

std::vector<double> softmax_weights(std::vector<double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& s : scores) total += s = std::exp(s - largest);
  for (double& s : scores) s /= total;
  return scores;
}

}  // namespace

std::vector<double> reference_attention(const AttentionConfig& config, const AttentionHeadParams& params,
                                        std::span<const float> q, std::span<const float> keys,
                                        std::span<const float> values) {
  const auto dims = static_cast<std::size_t>(config.head_dim);
  const std::size_t q_cols = static_cast<std::size_t>(config.heads) * dims;
  const std::size_t kv_cols = static_cast<std::size_t>(config.kv_heads) * dims;
  const std::size_t rows = q.size() / q_cols;
  const std::size_t context = keys.size() / kv_cols;
  const std::size_t group = q_cols / kv_cols;
  std::vector<double> out(q.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t head = 0; head < static_cast<std::size_t>(config.heads); ++head) {
      const std::size_t q_at = row * q_cols + head * dims;
      const std::size_t kv_at = head / group * dims;
      std::vector<double> scores(context - rows + row + 1);
      for (std::size_t j = 0; j < scores.size(); ++j) {
        for (std::size_t d = 0; d < dims; ++d)
          scores[j] += double{q[q_at + d]} * keys[j * kv_cols + kv_at + d];
        scores[j] *= config.scale;
      }
      const std::vector<double> weights = config.kind == AttentionKind::softmax
                                              ? softmax_weights(scores)
                                              : asynci_weights(config, params, head, scores);
      for (std::size_t j = 0; j < weights.size(); ++j)
        for (std::size_t d = 0; d < dims; ++d) out[q_at + d] += weights[j] * values[j * kv_cols + kv_at + d];
    }
  return out;
}

}  // namespace asynct
