#pragma once

#include <cstdint>
#include <vector>

#include "asynct/ops/context.h"

namespace asynct {

/// Rotary position embedding, half-split ("rotate_half"): dimension i pairs with i + D/2.
/// cos and sin are tabulated in float exactly as the PyTorch reference computes them.
class Rope {
 public:
  Rope(double theta, std::int64_t head_dim, std::int64_t max_positions);

  std::int64_t max_positions() const { return max_positions_; }

  /// Rotates one head vector [D] in place. 0 <= position < max_positions(). No rounding.
  void apply(const OpContext& context, float* head, std::int64_t position) const;

 private:
  std::int64_t half_;
  std::int64_t max_positions_;
  std::vector<float> cos_;  // [max_positions, D/2]
  std::vector<float> sin_;
};

}  // namespace asynct
