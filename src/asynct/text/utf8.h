#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace asynct {

struct CodePoint {
  char32_t value;  // U+FFFD when !valid
  int length;      // bytes; for an ill-formed sequence those that one U+FFFD replaces (its maximal subpart)
  bool valid;
};

/// The character at the start of non-empty `text`.
CodePoint decode_utf8(std::string_view text);

/// Likewise for text known to be well-formed, as fast as it can be.
inline CodePoint decode_valid_utf8(const char* text) {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3, true};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4, true};
}

void append_utf8(std::string& out, char32_t code_point);

bool is_valid_utf8(std::string_view text);

/// Appends `text` to `out` with each ill-formed sequence replaced by U+FFFD (one a maximal subpart, as
/// Python's errors="replace" and Rust's from_utf8_lossy do).
void append_valid_utf8(std::string& out, std::string_view text);

/// Length of the longest prefix of `text` that no later bytes can change: all of it but an unfinished
/// character at its end (at most 3 bytes).
std::size_t complete_utf8_prefix(std::string_view text);

/// Length of the leading ASCII part, found in strides of eight bytes.
std::size_t ascii_prefix(std::string_view text);

}  // namespace asynct
