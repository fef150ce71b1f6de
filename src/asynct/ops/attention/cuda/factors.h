#pragma once

#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/cuda/args.h"

namespace asynct::cuda {

/// AttentionConfig's formula with scale and pool size multiplied in, by query head. Error unless scale > 0:
/// scores and raw products must have one sign.
std::vector<HeadFactors> head_factors(const AttentionConfig& config, const AttentionHeadParams& params);

}  // namespace asynct::cuda
