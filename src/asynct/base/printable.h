#pragma once

#include <string>
#include <string_view>

namespace asynct {

/// `text` as one line that is safe on a terminal: messages quote what was found in files and file names, so
/// control characters become spaces and ill-formed UTF-8 becomes U+FFFD.
std::string printable(std::string_view text);

}  // namespace asynct
