#include "asynct/text/chat_template/string_literal.h"

#include <optional>

#include "asynct/base/error.h"
#include "asynct/text/utf8.h"

namespace asynct::jinja {
namespace {

std::optional<char32_t> digit(char c, char32_t base) {
  char32_t value = 99;
  if (c >= '0' && c <= '9') value = static_cast<char32_t>(c - '0');
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') value = static_cast<char32_t>((c | 0x20) - 'a') + 10;
  return value < base ? std::optional(value) : std::nullopt;
}

/// Takes up to `most` digits from the front of `text`.
char32_t take_number(std::string_view& text, char32_t base, int most, int& taken) {
  char32_t value = 0;
  for (taken = 0; taken < most && !text.empty(); ++taken) {
    const auto next = digit(text.front(), base);
    if (!next.has_value()) break;
    value = value * base + *next;
    text.remove_prefix(1);
  }
  return value;
}

void append_hex_escape(std::string& out, std::string_view& text, char letter) {
  const int digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  int taken = 0;
  const char32_t value = take_number(text, 16, digits, taken);
  if (taken != digits) fail("truncated escape \\", letter, " in a string");
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
    fail("\\", letter, " escape of no character in a string");
  append_utf8(out, value);
}

/// jinja2 turns characters beyond ASCII into escapes first, so a backslash before one escapes that backslash.
void append_escaped_beyond_ascii(std::string& out, std::string_view& text) {
  const CodePoint c = decode_utf8(text);
  text.remove_prefix(static_cast<std::size_t>(c.length));
  const int digits = c.value < 0x100 ? 2 : c.value < 0x10000 ? 4 : 8;
  out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[c.value >> (4 * i) & 15];
}

}  // namespace

std::string unescape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find('\\'), text.size());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.size() < 2) break;
    const char c = text[1];
    if (static_cast<unsigned char>(c) >= 0x80) {
      text.remove_prefix(1);
      append_escaped_beyond_ascii(out, text);
      continue;
    }
    if (c >= '0' && c <= '7') {
      text.remove_prefix(1);
      int taken = 0;
      append_utf8(out, take_number(text, 8, 3, taken));
      continue;
    }
    text.remove_prefix(2);
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t at = kLetters.find(c); at != std::string_view::npos) {
      out += kValues[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_hex_escape(out, text, c);
    } else if (c == 'N') {
      fail("escape \\N in a string is not supported");
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace asynct::jinja
