#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/ops/context.h"

namespace asynct {

/// Rotary position embedding, half-split ("rotate_half"): dimension i pairs with i + D/2.
/// cos and sin are tabulated in float exactly as the PyTorch reference computes them, up to the longest
/// position that was asked for: a context of 2^20 tokens costs nothing until it is used.
class Rope {
 public:
  Rope(double theta, std::int64_t head_dim, std::int64_t max_positions);

  std::int64_t max_positions() const { return max_positions_; }

  /// Fills the table for positions below `positions` (at most max_positions()), kStep at a time. Outside of
  /// parallel regions.
  void prepare(std::int64_t positions);

  /// Rotates one head vector [D] in place. 0 <= position < what was prepared. No rounding.
  void apply(const OpContext& context, float* head, std::int64_t position) const;

  /// The table's entry of a position that was prepared: cos [D/2], then sin [D/2].
  std::span<const float> cos_sin(std::int64_t position) const;

  static constexpr std::int64_t kStep = 1024;
  /// Bytes of the table when `positions` are prepared.
  static std::size_t table_bytes(std::int64_t head_dim, std::int64_t positions);

 private:
  std::int64_t half_;
  std::int64_t max_positions_;
  std::vector<float> frequency_;             // [D/2]
  std::vector<std::vector<float>> cos_sin_;  // [steps] of [positions of the step][cos [D/2], sin [D/2]]
};

}  // namespace asynct
