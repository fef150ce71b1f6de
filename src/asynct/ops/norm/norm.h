#pragma once

#include <cstdint>
#include <vector>

#include "asynct/ops/context.h"

namespace asynct {

enum class NormKind { dyht, rms };

struct NormParams {
  NormKind kind = NormKind::dyht;
  std::vector<float> alpha;  // dyht: [1] or [n]; rms: unused
  std::vector<float> gamma;  // [1] or [n]; rms: its weight
  std::vector<float> beta;   // dyht: empty, [1] or [n]
  float clip_low = -1;
  float clip_high = 1;
  float epsilon = 1e-6F;  // rms only
};

/// DyHT  y = gamma * clamp(alpha * x + beta, low, high)     element by element, no statistic of the row
/// RMS   y = gamma * x / sqrt(mean(x^2) + epsilon)
/// NaN in, NaN out. `size` is the length of the vector that is normalized: the hidden size, or the head size
/// for q and k.
class Norm {
 public:
  Norm(const NormParams& params, std::int64_t size);

  std::int64_t size() const { return size_; }
  const NormParams& params() const { return params_; }

  /// One vector of size() values; x may be y. Serial: epilogues call it. Rounds in bf16 precision when
  /// `round`.
  void apply(const OpContext& context, const float* x, float* y, bool round) const;

  /// Every row of x [M, size]; one parallel region. Rounds in bf16 precision.
  void run(OpContext& context, ConstMatrix x, Matrix y) const;

 private:
  NormParams params_;  // broadcast to [size]
  std::int64_t size_;
};

}  // namespace asynct
