#pragma once

#include <cuda_runtime_api.h>

#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/prefill.h"

// Softmax attention by prefill's kernel: the same copies, products and plan, so that a comparison with AsyncI
// changes one thing only.
namespace asynct::cuda {

/// As run_prefill(), with softmax_factors(). head_dim 64 or 128, dtype bf16. Error for anything else. A row's
/// result depends on its own keys only, as AsyncI's.
void run_softmax_prefill(const PrefillArgs& args, DType dtype, std::int32_t head_dim, cudaStream_t stream);

}  // namespace asynct::cuda
