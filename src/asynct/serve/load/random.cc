#include "asynct/serve/load/random.h"

#include <cmath>
#include <numbers>

namespace asynct::load {

double Random::unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

// Below 2^53 values the share by which some are likelier is below 2^-11 for every length and vocabulary here.
std::int64_t Random::between(std::int64_t least, std::int64_t greatest) {
  const auto values = static_cast<std::uint64_t>(greatest - least) + 1;
  return least + static_cast<std::int64_t>(engine_() % values);
}

double Random::exponential() { return -std::log1p(-unit()); }

double Random::normal() {
  const double radius = std::sqrt(2 * exponential());
  return radius * std::cos(2 * std::numbers::pi * unit());
}

}  // namespace asynct::load
