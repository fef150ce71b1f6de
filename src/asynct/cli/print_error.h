#pragma once

#include <string_view>

namespace asynct {

/// "asynct: error: MESSAGE" on stderr, as one line that is safe on a terminal: messages quote what was found
/// in files, so control characters become spaces and ill-formed UTF-8 becomes U+FFFD.
void print_error(std::string_view message);

}  // namespace asynct
