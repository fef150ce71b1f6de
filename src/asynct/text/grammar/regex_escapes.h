#pragma once

#include <string>
#include <string_view>

namespace asynct {

/// The regular expression with \xHH and \u00HH written as the characters that they are. xgrammar reads as
/// many digits after \x as there are, and writes \u00HH as \xHH for itself.
std::string without_byte_escapes(std::string_view regex);

/// Whether there are any.
bool has_byte_escapes(std::string_view regex);

}  // namespace asynct
