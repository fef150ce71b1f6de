#include "asynct/text/grammar/regex_escapes.h"

#include <charconv>

#include "asynct/text/utf8.h"

namespace asynct {
namespace {

struct Escape {
  unsigned value = 0;
  std::size_t length = 0;  // 0: there is none
};

// At a backslash.
Escape byte_escape(std::string_view text) {
  const std::string_view lead = text.starts_with("\\x") ? "\\x" : "\\u00";
  if (!text.starts_with(lead) || text.size() < lead.size() + 2) return {};
  Escape escape{.length = lead.size() + 2};
  const char* const digits = text.data() + lead.size();
  const auto [end, error] = std::from_chars(digits, digits + 2, escape.value, 16);
  return error == std::errc() && end == digits + 2 ? escape : Escape{};
}

void append_character(unsigned value, std::string& out) {
  if (value == 0) {
    out += "\\0";
    return;
  }
  constexpr std::string_view kNamed = "\t\n\v\f\r";
  if (const auto name = kNamed.find(static_cast<char>(value));
      value < 0x80 && name != std::string_view::npos) {
    out += '\\';
    out += "tnvfr"[name];
    return;
  }
  constexpr std::string_view kSyntax = "^$.*+?\\()[]{}|/-";
  if (value < 0x80 && kSyntax.find(static_cast<char>(value)) != std::string_view::npos) out += '\\';
  append_utf8(out, value);
}

}  // namespace

std::string without_byte_escapes(std::string_view regex) {
  std::string out;
  for (std::size_t at = 0; at < regex.size();) {
    const Escape escape = byte_escape(regex.substr(at));
    if (escape.length > 0) {
      append_character(escape.value, out);
      at += escape.length;
      continue;
    }
    const std::size_t length = regex[at] == '\\' && at + 1 < regex.size() ? 2 : 1;
    out += regex.substr(at, length);
    at += length;
  }
  return out;
}

bool has_byte_escapes(std::string_view regex) { return without_byte_escapes(regex) != regex; }

}  // namespace asynct
