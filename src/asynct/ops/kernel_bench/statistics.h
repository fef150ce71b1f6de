#pragma once

#include <vector>

namespace asynct::kernel_bench {

/// Of repeated measurements; all 0 for none.
struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  int count = 0;
};

/// Quantiles between neighbours are interpolated.
Summary summarize(std::vector<double> values);

}  // namespace asynct::kernel_bench
