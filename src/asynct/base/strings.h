#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace asynct {

namespace detail {
inline void append(std::string& out, std::string_view text) { out.append(text); }
inline void append(std::string& out, char c) { out.push_back(c); }
template <class Bool>
requires std::is_same_v<Bool, bool>  // a pointer must not turn into "true"
void append(std::string& out, Bool value) { out.append(value ? "true" : "false"); }
template <class Number>
requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool> &&
         !std::is_same_v<Number, char>) void append(std::string& out, Number value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;  // shortest text that reads back
  out.append(buffer, end);
}
}  // namespace detail

/// Joins text and numbers: cat("layer ", 3, ": ", 0.5) == "layer 3: 0.5".
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

}  // namespace asynct
