#pragma once

#include <cstddef>
#include <limits>
#include <type_traits>

#include "asynct/base/error.h"

namespace asynct {

/// a * b for sizes that come from a file or a user; an Error that names `what` instead of a wrap-around.
inline std::size_t checked_mul(std::size_t a, std::size_t b, std::string_view what) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail(what, ": ", a, " x ", b, " overflows 64 bits");
  return product;
}

/// a + b, likewise.
inline std::size_t checked_add(std::size_t a, std::size_t b, std::string_view what) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(what, ": ", a, " + ", b, " overflows 64 bits");
  return sum;
}

/// `value` as Target when it fits, else an Error that names `what`.
template <class Target, class Source>
Target checked_cast(Source value, std::string_view what) {
  static_assert(std::is_integral_v<Target> && std::is_integral_v<Source>);
  const auto narrowed = static_cast<Target>(value);
  if (static_cast<Source>(narrowed) != value || ((narrowed < Target{}) != (value < Source{})))
    fail(what, ": ", value, " does not fit the range up to ", std::numeric_limits<Target>::max());
  return narrowed;
}

}  // namespace asynct
