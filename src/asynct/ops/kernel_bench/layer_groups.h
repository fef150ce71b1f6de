#pragma once

#include <vector>

#include "asynct/ops/kernel_bench/candidate.h"

namespace asynct::kernel_bench {

struct KernelBenchOptions;

/// What a model runs besides attention and products: norms, residuals, ReGLU, embedding, the packed qkv rows,
/// scores and the choice of tokens. bf16, logits in float where tokens are chosen.
std::vector<LazyGroup> layer_groups(const KernelBenchOptions& options, double cache_bytes);

}  // namespace asynct::kernel_bench
