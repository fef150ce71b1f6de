#pragma once

#include <cstdint>

// The numbers of the CPU's sampler: ops/head/weight.h and engine/sampling.cc, bit for bit.
namespace asynct::cuda {

/// a * b + c, rounded twice where the bits must be the CPU's.
template <bool kExact>
__device__ inline double multiply_then_add(double a, double b, double c) {
  return kExact ? __dadd_rn(__dmul_rn(a, b), c) : fma(a, b, c);
}

/// exp((logit - largest) * scale), at least e^-708. Not exact: within two ulps, in less than two thirds of
/// the instructions, for sums whose order differs anyway.
template <bool kExact>
__device__ inline double weight_of(float logit, float largest, double scale) {
  const double exponent = fmax(__dmul_rn(static_cast<double>(logit) - largest, scale), -708.);
  constexpr double kInteger = 0x1.8p52;  // adding it rounds to an integer, which is left in the low bits
  const double shifted = multiply_then_add<kExact>(exponent, 1.4426950408889634, kInteger);
  const double n = shifted - kInteger;
  double r = multiply_then_add<kExact>(-n, 6.93147180369123816490e-01, exponent);
  r = multiply_then_add<kExact>(-n, 1.90821492927058770002e-10, r);
  constexpr double kFactors[] = {1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720,
                                 1. / 120,      1. / 24,      1. / 6,      0.5,        1.,        1.};
  double p = 1. / 479001600;  // of degree 12, the error is 2e-16
  if (kExact) p = multiply_then_add<kExact>(1. / 6227020800., r, p);
#pragma unroll
  for (const double factor : kFactors) p = multiply_then_add<kExact>(p, r, factor);
  const double power =
      __longlong_as_double(static_cast<long long>((__double_as_longlong(shifted) + 1023) << 52));
  return __dmul_rn(p, power);
}

/// A number in [0, 1) of seed and step.
__device__ inline double uniform(std::uint64_t seed, std::uint64_t step) {
  const auto mix = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  return static_cast<double>(mix(mix(seed) ^ step) >> 11) * 0x1p-53;
}

}  // namespace asynct::cuda
