#include "asynct/eval/python_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "asynct/base/strings.h"
#include "asynct/text/utf8.h"

namespace asynct::python {

namespace {

/// Where the last character of non-empty `text` starts.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string_view rstrip(std::string_view text) {
  while (!text.empty()) {
    const std::size_t at = last_character(text);
    if (!is_space(decode_utf8(text.substr(at)).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    if (!is_space(c.value)) break;
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return rstrip(text);
}

std::size_t length(std::string_view text) {
  std::size_t characters = 0;
  while (!text.empty()) {
    text.remove_prefix(static_cast<std::size_t>(decode_utf8(text).length));
    ++characters;
  }
  return characters;
}

std::size_t split_count(std::string_view text) {
  std::size_t parts = 1;
  bool in_space = false;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    const bool space = is_space(c.value);
    if (space && !in_space) ++parts;
    in_space = space;
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return parts;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const std::size_t at = text.find(from);
    out.append(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

std::string capitalize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool first = true;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    const auto code = static_cast<utf8proc_int32_t>(c.value);
    append_utf8(out, static_cast<char32_t>(first ? utf8proc_totitle(code) : utf8proc_tolower(code)));
    text.remove_prefix(static_cast<std::size_t>(c.length));
    first = false;
  }
  return out;
}

}  // namespace asynct::python
