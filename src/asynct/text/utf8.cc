#include "asynct/text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace asynct {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What a lead byte says: the length of the sequence and the range of its second byte (the Unicode standard's
/// table 3-7, which rules out overlong forms, surrogates and values above U+10FFFF).
struct Lead {
  int length;  // 0: not a lead byte
  unsigned char low, high;
};

constexpr Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// Bytes of `text` that form, or could still form, its first character; `wanted` is the full length.
int well_formed_part(std::string_view text, int& wanted) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[static_cast<std::size_t>(i)]); };
  const Lead lead = lead_of(byte(0));
  wanted = lead.length;
  if (lead.length <= 1) return lead.length;
  const int available = static_cast<int>(std::min<std::size_t>(text.size(), 4));
  if (available < 2 || byte(1) < lead.low || byte(1) > lead.high) return 1;
  int got = 2;
  while (got < lead.length && got < available && (byte(got) & 0xC0) == 0x80) ++got;
  return got;
}

}  // namespace

CodePoint decode_utf8(std::string_view text) {
  int wanted = 0;
  const int got = well_formed_part(text, wanted);
  if (got == 0 || got != wanted) return {0xFFFD, got == 0 ? 1 : got, false};
  return decode_valid_utf8(text.data());
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + i, 8);
    if ((eight & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

bool is_valid_utf8(std::string_view text) {
  while (true) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    const CodePoint c = decode_utf8(text);
    if (!c.valid) return false;
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
}

void append_valid_utf8(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t plain = ascii_prefix(text);
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) return;
    const CodePoint c = decode_utf8(text);
    out.append(c.valid ? text.substr(0, static_cast<std::size_t>(c.length)) : kReplacement);
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
}

std::size_t complete_utf8_prefix(std::string_view text) {
  const std::size_t longest = std::min<std::size_t>(text.size(), 3);
  for (std::size_t tail = 1; tail <= longest; ++tail) {
    const std::string_view end = text.substr(text.size() - tail);
    int wanted = 0;
    const int got = well_formed_part(end, wanted);
    if (wanted > static_cast<int>(tail) && got == static_cast<int>(tail)) return text.size() - tail;
    if ((static_cast<unsigned char>(end[0]) & 0xC0) != 0x80) break;  // a lead byte: nothing before it matters
  }
  return text.size();
}

}  // namespace asynct
