#pragma once

#include <cstdint>

namespace asynct {

inline constexpr double kLowestExponent = -708;  // e to it is 3e-308, about the last that is no denormal

// Unnamed and free of templates: units compiled with -m flags include it, and the linker must not give their
// copy to others.
namespace {

/// e^x for kLowestExponent <= x <= 0, within 1.2 ulp. No fused operation, hence the same bits in every family
/// and in loops that a compiler makes vectors of.
/// x = n ln 2 + r, |r| <= ln 2 / 2; Taylor's polynomial of degree 13 on r.
inline double exp_of_bounded(double x) {
  constexpr double kInteger = 0x1.8p52;  // adding it rounds to an integer, which is left in the low bits
  const double shifted = x * 1.4426950408889634 + kInteger;
  const double n = shifted - kInteger;
  // ln 2 in two parts, the first short enough that n times it is exact.
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1;
  p = p * r + 1;
  return p * __builtin_bit_cast(double, (__builtin_bit_cast(std::uint64_t, shifted) + 1023) << 52);
}

/// exp((logit - max) * scale) as an exponent for exp_of_bounded; scale > 0.
inline double bounded_exponent(float logit, float max, double scale) {
  const double x = (double{logit} - max) * scale;
  return x > kLowestExponent ? x : kLowestExponent;
}

}  // namespace
}  // namespace asynct
