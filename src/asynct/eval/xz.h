#pragma once

#include <cstddef>
#include <string>

namespace asynct {

/// The contents of an .xz file, at most `limit` bytes. Errors: not xz, damaged, truncated, too large.
std::string read_xz_file(const std::string& path, std::size_t limit);

}  // namespace asynct
