#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "asynct/text/utf8.h"

// Appends JSON to a string: for what is written once a token, where a tree of values would cost more than the
// model's step.
namespace asynct::serve {

/// A string in quotes. Ill-formed UTF-8 becomes U+FFFD.
void append_json(std::string& out, std::string_view text);

inline void append_json(std::string& out, std::int64_t number) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

/// The fewest digits that give the same float again. JSON has no infinities: minus infinity becomes -9999, as
/// vLLM writes it.
inline void append_json(std::string& out, float number) {
  if (!std::isfinite(number)) {
    out += number < 0 ? "-9999.0" : "null";
    return;
  }
  char digits[32];
  const char* const end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  const std::string_view shortest(digits, static_cast<std::size_t>(end - digits));
  out += shortest;
  if (shortest.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace asynct::serve
