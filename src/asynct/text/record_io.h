#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "asynct/base/error.h"

// Records of the tools that differential tests talk to: a 32-bit little-endian length and that many bytes.
namespace asynct {

/// From standard input; false at its end. Error: a record that is cut.
inline bool read_record(std::string& record) {
  std::uint32_t size = 0;
  if (std::fread(&size, sizeof size, 1, stdin) != 1) return false;
  record.resize(size);
  if (std::fread(record.data(), 1, size, stdin) != size) fail("stdin: a record of ", size, " bytes is cut");
  return true;
}

/// To standard output.
inline void write_record(std::string_view record) {
  const auto length = static_cast<std::uint32_t>(record.size());
  std::fwrite(&length, sizeof length, 1, stdout);
  std::fwrite(record.data(), 1, record.size(), stdout);
}

}  // namespace asynct
