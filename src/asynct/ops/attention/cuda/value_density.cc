#include "asynct/ops/attention/cuda/value_density.h"

namespace asynct::cuda {
namespace {

// Of the past at each reading: the last ten make two thirds of the estimate.
constexpr double kKept = 0.9;

}  // namespace

void ValueDensity::observe(std::uint64_t count) {
  // The counter wraps around as a whole, so the difference is right even then.
  const std::uint64_t more = count - count_;
  count_ = count;
  if (more == 0) return;
  seen_ = kKept * seen_ + static_cast<double>(more >> 32);
  needed_ = kKept * needed_ + static_cast<double>(more & 0xFFFFFFFF);
  if (estimate() < kSkipBelow) skips_ = true;
  if (estimate() > kAllAbove) skips_ = false;
}

}  // namespace asynct::cuda
