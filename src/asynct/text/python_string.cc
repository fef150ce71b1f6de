#include "asynct/text/python_string.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/text/python_values.h"
#include "asynct/text/utf8.h"

namespace asynct::python {
namespace {

CodePoint first_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  return first < 0x80 ? CodePoint{first, 1, true} : decode_utf8(text);
}

/// Bytes of the last character of non-empty `text`.
std::size_t last_length(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.size() - at;
}

bool contains(std::optional<std::string_view> set, std::string_view character) {
  // A match of a whole character is one of a character: no encoding of one begins within another.
  return set.has_value() ? set->find(character) != std::string_view::npos
                         : is_space(first_of(character).value);
}

}  // namespace

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  while (side != Side::kRight && !text.empty()) {
    const auto size = static_cast<std::size_t>(first_of(text).length);
    if (!contains(characters, text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const std::size_t size = last_length(text);
    if (!contains(characters, text.substr(text.size() - size))) break;
    text.remove_suffix(size);
  }
  return text;
}

std::int64_t length(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::int64_t split_count(std::string_view text) {
  std::int64_t parts = 1;
  bool in_space = false;
  while (!text.empty()) {
    const CodePoint c = first_of(text);
    const bool space = is_space(c.value);
    if (space && !in_space) ++parts;
    in_space = space;
    text.remove_prefix(static_cast<std::size_t>(c.length));
  }
  return parts;
}

std::size_t byte_offset(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; index > 0; --index) at += static_cast<std::size_t>(first_of(text.substr(at)).length);
  return at;
}

std::size_t find_bytes(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, static_cast<std::size_t>(first_of(text).length)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

namespace {

std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t limit, bool from_right) {
  const Side outer = from_right ? Side::kRight : Side::kLeft;
  std::vector<std::string_view> parts;
  for (text = strip(text, outer); !text.empty(); text = strip(text, outer)) {
    std::size_t size = 0;  // of the word at the outer end
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) size = text.size();
    while (size < text.size()) {
      const std::string_view rest = from_right ? text.substr(0, text.size() - size) : text.substr(size);
      const auto one = from_right ? last_length(rest) : static_cast<std::size_t>(first_of(rest).length);
      if (is_space(first_of(from_right ? rest.substr(rest.size() - one) : rest).value)) break;
      size += one;
    }
    parts.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    from_right ? text.remove_suffix(size) : text.remove_prefix(size);
  }
  return parts;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  if (!separator.has_value()) {
    parts = split_at_space(text, limit, from_right);
  } else {
    if (separator->empty()) fail("split: empty separator");
    while (limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) {
      const std::size_t at = from_right ? text.rfind(*separator) : find_bytes(text, *separator);
      if (at == std::string_view::npos) break;
      parts.push_back(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
      text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
    }
    parts.push_back(text);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_of(text.substr(at));
    const std::size_t end = at;
    at += static_cast<std::size_t>(c.length);
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    if (!ends) continue;
    if (c.value == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

namespace {

std::string join_between_characters(std::string_view text, std::string_view to, std::int64_t limit) {
  std::string out;
  std::int64_t made = 0;
  for (const std::string_view c : characters(text)) {
    if (limit < 0 || made++ < limit) out.append(to);
    out.append(c);
  }
  if (limit < 0 || made < limit) out.append(to);
  return out;
}

}  // namespace

std::string replace(std::string_view text, std::string_view from, std::string_view to, std::int64_t limit,
                    std::size_t largest) {
  std::size_t matches = 0;
  if (from.empty()) {
    matches = static_cast<std::size_t>(length(text)) + 1;
  } else {
    for (std::size_t at = 0; (at = find_bytes(text, from, at)) != std::string_view::npos; at += from.size())
      ++matches;
  }
  if (limit >= 0) matches = std::min(matches, static_cast<std::size_t>(limit));
  if (!to.empty() && matches > largest / to.size())
    fail("replace: a string of more than ", largest, " bytes");
  if (from.empty()) return join_between_characters(text, to, limit);
  std::string out;
  out.reserve(text.size());
  for (; matches > 0; --matches) {
    const std::size_t at = find_bytes(text, from);
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

/// Digits with single underscores between them, as Python allows, without the underscores.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto alnum = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

int base_of_prefix(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1] | 0x20) {
    case 'x':
      return 16;
    case 'o':
      return 8;
    case 'b':
      return 2;
    default:
      return 0;
  }
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip(text);
  std::string digits;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    if (text[0] == '-') digits = "-";
    text.remove_prefix(1);
  }
  const int prefix = base_of_prefix(text);
  if (prefix != 0 && (base == prefix || base == 0)) {
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    base = prefix;
  } else if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;  // 010 is no literal
    base = 10;
  }
  const auto plain = without_underscores(text);
  if (!plain.has_value() || plain->empty() || (*plain)[0] == '-') return std::nullopt;
  digits += *plain;
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ptr != digits.data() + digits.size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range)
    fail("integer ", digits.substr(0, 40), " does not fit 64 bits");
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  const auto plain = without_underscores(strip(text));
  if (!plain.has_value() || plain->empty()) return std::nullopt;
  std::string_view rest = *plain;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  std::string word(rest);
  for (char& c : word) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos || word[0] == '-')
      return std::nullopt;
    const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
    if (result.ptr != word.data() + word.size() || result.ec == std::errc::invalid_argument)
      return std::nullopt;
    if (result.ec == std::errc::result_out_of_range)
      value = std::strtod(word.c_str(), nullptr);  // 0 or infinity
  }
  return negative ? -value : value;
}

}  // namespace asynct::python
