#pragma once

#include <vector>

#include "asynct/ops/kernel_bench/candidate.h"

namespace asynct::kernel_bench {

struct KernelBenchOptions;

/// Products of rows with a weight matrix, bf16.
std::vector<LazyGroup> linear_groups(const KernelBenchOptions& options, double cache_bytes);

}  // namespace asynct::kernel_bench
