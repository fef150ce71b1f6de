#pragma once

#include <vector>

#include "asynct/ops/kernel_bench/candidate.h"
#include "asynct/ops/kernel_bench/nvml.h"
#include "asynct/ops/kernel_bench/report.h"

namespace asynct::kernel_bench {

struct TimingOptions {
  int rounds = 21;
  int skipped = 4;                 // rounds before the first that counts
  double gap_seconds = 3e-3;       // idle before each burst
  double sustained_seconds = 0.4;  // 0: no sustained figures
  double graph_seconds = 2e-3;     // calls of one graph together
};

/// A result for each of the group's variants; one that fails has its error in place of times. Of candidates
/// with one name the fastest in bursts is kept. A time is that of a graph of calls over all sets by its
/// number of calls.
std::vector<Result> measure(const Group& group, const TimingOptions& options, const Nvml& nvml);

}  // namespace asynct::kernel_bench
