#pragma once

#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

struct AttentionFactors {
  std::vector<HeadFactors> heads;  // [H]
  WeightForm form;
};

/// WeightForm::pool_floor.
float pool_floor(bool pool_relu);

/// AttentionConfig's formula as the kernels take it. Error unless scale > 0: scores and raw products must
/// have one sign.
AttentionFactors attention_factors(const AttentionConfig& config, const AttentionHeadParams& params,
                                   DType dtype);

/// The softmax twin's (softmax.h), of config.scale alone. Error unless it is above 0.
AttentionFactors softmax_factors(const AttentionConfig& config);

}  // namespace asynct::cuda
