#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/ops/attention/attention.h"

namespace asynct {

/// The formula of AttentionConfig in double over plain arrays, for tests: one sequence, keys and values
/// [context, Hk * D], q [rows, H * D] for the last `rows` positions. Returns [rows, H * D].
std::vector<double> reference_attention(const AttentionConfig& config, const AttentionHeadParams& params,
                                        std::span<const float> q, std::span<const float> keys,
                                        std::span<const float> values);

}  // namespace asynct
