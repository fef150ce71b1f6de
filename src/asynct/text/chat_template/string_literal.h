#pragma once

#include <string>
#include <string_view>

namespace asynct::jinja {

/// The value of a string literal, given what is between its quotes: Python's escapes but \N{...}. Errors:
/// truncated escapes, surrogates, code points beyond U+10FFFF.
std::string unescape(std::string_view text);

}  // namespace asynct::jinja
