#pragma once

#include <cstdint>
#include <string_view>

#include "asynct/serve/load/random.h"

namespace asynct::load {

/// A distribution of lengths in tokens, each at least 1: "128" always, "128:32" normal with that mean and
/// standard deviation (rounded, and clipped to 1 and kMaxLength), "64..256" uniform with both ends.
class LengthDistribution {
 public:
  static constexpr std::int64_t kMaxLength = 10'000'000;

  /// Error names `what` (the option).
  static LengthDistribution parse(std::string_view text, std::string_view what);

  std::int64_t draw(Random& random) const;

 private:
  std::int64_t least_ = 1;  // of the uniform one; equal for a constant
  std::int64_t greatest_ = 1;
  double deviation_ = 0;  // above 0: normal around least_
};

/// Moments at which requests arrive: a Poisson process of `rate` a second, or all at once for an infinite
/// one.
class ArrivalProcess {
 public:
  ArrivalProcess(double rate, std::uint64_t seed) : rate_(rate), random_(seed) {}

  /// Seconds from the start, never decreasing.
  double next();

 private:
  double rate_;
  Random random_;
  double now_ = 0;
};

/// "12.5" or "inf". Error names `what`.
double parse_rate(std::string_view text, std::string_view what);

}  // namespace asynct::load
