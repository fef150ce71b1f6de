#include "asynct/ops/kernel_bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace asynct::kernel_bench {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(at));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - std::floor(at));
}

}  // namespace

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5),
          .p10 = quantile(values, 0.1),
          .p90 = quantile(values, 0.9),
          .count = static_cast<int>(values.size())};
}

}  // namespace asynct::kernel_bench
