#pragma once

#include <cstdint>

// A logit and its token as one integer: the largest is the row's choice at temperature 0. Maxima of integers
// can be taken in any order.
namespace asynct::cuda {

inline constexpr std::uint64_t kNoLogit = 0;  // below every key

/// Larger for a larger logit, of equal ones for the lower token; NaN above all numbers.
__device__ inline std::uint64_t logit_key(float logit, int token) {
  const std::uint32_t bits = __float_as_uint(__fadd_rn(logit, 0.F));  // -0 is 0
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const std::uint32_t high = isnan(logit) ? ~0u : ordered;
  return static_cast<std::uint64_t>(high) << 32 | ~static_cast<std::uint32_t>(token);
}

__device__ inline float key_logit(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

__device__ inline int key_token(std::uint64_t key) {
  return static_cast<int>(~static_cast<std::uint32_t>(key));
}

/// Whether a row with this largest key has a choice: not where a logit is NaN or the largest is infinite.
__device__ inline bool is_choice(std::uint64_t largest) { return isfinite(key_logit(largest)); }

}  // namespace asynct::cuda
