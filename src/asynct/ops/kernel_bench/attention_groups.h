#pragma once

#include <vector>

#include "asynct/ops/kernel_bench/candidate.h"

namespace asynct::kernel_bench {

struct KernelBenchOptions;

/// AsyncI over a paged bf16 cache, page 16, pool size 3, shuffled pages.
std::vector<LazyGroup> decode_groups(const KernelBenchOptions& options, double cache_bytes);
std::vector<LazyGroup> prefill_groups(const KernelBenchOptions& options, double cache_bytes);
std::vector<LazyGroup> mixed_groups(const KernelBenchOptions& options, double cache_bytes);

}  // namespace asynct::kernel_bench
