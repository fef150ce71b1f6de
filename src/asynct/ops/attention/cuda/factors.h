#pragma once

#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// What kernels multiply the queries with: the scale where that is exact (a power of two; fp16 has too few
/// exponents), else
/// 1. Error unless scale > 0: scores and raw products must have one sign.
float query_scale(const AttentionConfig& config, DType dtype);

/// AttentionConfig's formula with scale and pool size multiplied in, by query head, for queries scaled so.
std::vector<HeadFactors> head_factors(const AttentionConfig& config, const AttentionHeadParams& params,
                                      float query_scale);

/// Slope 1 and bias 0 for all: prefill then has a shorter way to the same bits.
bool all_plain(const std::vector<HeadFactors>& factors);

}  // namespace asynct::cuda
