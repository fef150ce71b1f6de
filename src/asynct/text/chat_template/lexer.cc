#include "asynct/text/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "asynct/base/error.h"
#include "asynct/text/chat_template/python_names.h"
#include "asynct/text/chat_template/string_literal.h"
#include "asynct/text/utf8.h"

namespace asynct::jinja {
namespace {

// Longest first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// One line end, "\n", for each of \r\n, \r and \n, without the last of the text.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : text_(source), name_(name) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_text();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(name_, ":", line_, ": ", parts...);
  }

  std::string_view rest() const { return text_.substr(at_); }
  bool sees(std::string_view expected) const { return rest().starts_with(expected); }

  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
  }

  Token& add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
    return tokens_.back();
  }

  /// Bytes of white space from `from` on.
  std::size_t space_at(std::size_t from) const {
    const std::string_view tail = text_.substr(from);
    return tail.size() - strip(tail, Side::kLeft).size();
  }

  /// Bytes of an end of tag at `from`, with the white space that it takes along; 0 when there is none.
  std::size_t end_of_tag(std::size_t from, std::string_view end, bool is_block) const {
    const std::string_view tail = text_.substr(from);
    if (tail.empty()) return 0;
    if (tail[0] == '-' && tail.substr(1).starts_with(end)) {
      const std::size_t size = 1 + end.size();
      return size + space_at(from + size);
    }
    if (is_block && tail[0] == '+' && tail.substr(1).starts_with(end)) return 1 + end.size();
    if (!tail.starts_with(end)) return 0;
    return end.size() + (is_block && tail.substr(end.size()).starts_with('\n') ? 1 : 0);
  }

  /// Adds the text up to the tag at `tag`, stripped as the tag's sign says. Leaves the position at the tag.
  void add_text_before(std::size_t tag, bool is_variable) {
    std::string_view text = text_.substr(at_, tag - at_);
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || at_line_start_) && strip(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kText, std::string(text));
    advance(tag - at_);
  }

  void end_tag(std::size_t bytes) {
    advance(bytes);
    at_line_start_ = bytes > 0 && text_[at_ - 1] == '\n';
  }

  /// Text up to the next tag, and that tag.
  void lex_text() {
    std::size_t tag = at_;
    do {
      tag = text_.find('{', tag);
    } while (tag != std::string_view::npos && ++tag < text_.size() &&
             (text_[tag] != '{' && text_[tag] != '%' && text_[tag] != '#'));
    if (tag == std::string_view::npos || tag >= text_.size()) {
      add(TokenKind::kText, std::string(rest()));
      advance(rest().size());
      return;
    }
    --tag;
    const char kind = text_[tag + 1];
    const std::size_t raw = kind == '%' ? raw_tag(tag, "raw", true) : 0;
    add_text_before(tag, kind == '{');
    if (raw > 0) return lex_raw(raw);
    advance(2);
    if (!rest().empty() && (rest()[0] == '-' || rest()[0] == '+')) advance(1);
    if (kind == '#') return lex_comment();
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    lex_tag(kind == '%');
  }

  /// Bytes of the tag {% word %} at `from`; 0 when it is another. The end of a raw tag does not trim.
  std::size_t raw_tag(std::size_t from, std::string_view word, bool begins) const {
    std::size_t at = from + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at += space_at(at);
    if (!text_.substr(at).starts_with(word)) return 0;
    at += word.size();
    at += space_at(at);
    if (begins && text_.substr(at).starts_with("%}")) return at + 2 - from;
    if (begins && text_.substr(at).starts_with('+')) return 0;
    const std::size_t end = end_of_tag(at, "%}", true);
    return end == 0 ? 0 : at + end - from;
  }

  void lex_raw(std::size_t begin_bytes) {
    const int line = line_;
    end_tag(begin_bytes);
    if (rest().empty()) return;  // as jinja2 has it
    for (std::size_t end = text_.find("{%", at_); end != std::string_view::npos;
         end = text_.find("{%", end + 1)) {
      const std::size_t bytes = raw_tag(end, "endraw", false);
      if (bytes == 0) continue;
      add_text_before(end, false);
      return end_tag(bytes);
    }
    fail(name_, ":", line, ": raw without endraw");
  }

  void lex_comment() {
    if (rest().empty()) return;  // as jinja2 has it
    for (std::size_t end = at_; end < text_.size(); ++end) {
      const char c = text_[end];
      const std::size_t bytes = c == '#' || c == '-' || c == '+' ? end_of_tag(end, "#}", true) : 0;
      if (bytes > 0) return end_tag(end - at_ + bytes);
    }
    error("comment without end");
  }

  void lex_tag(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    for (;;) {
      if (brackets_.empty()) {
        const std::size_t bytes = end_of_tag(at_, end, is_block);
        if (bytes > 0) {
          add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
          return end_tag(bytes);
        }
      }
      if (at_ == text_.size()) error("tag without end");
      if (const std::size_t space = space_at(at_); space > 0) {
        advance(space);
        continue;
      }
      const char c = text_[at_];
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        lex_name();
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_operator();
      }
    }
  }

  void lex_name() {
    std::size_t size = 1;
    while (size < rest().size() && (is_name_start(rest()[size]) || is_digit(rest()[size]))) ++size;
    if (size < rest().size() && static_cast<unsigned char>(rest()[size]) >= 0x80)
      error("names with characters beyond ASCII are not supported");
    add(TokenKind::kName, std::string(rest().substr(0, size)));
    advance(size);
  }

  void lex_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) error("string without end");
    const int line = line_;
    try {
      add(TokenKind::kString, unescape(text_.substr(at_ + 1, end - at_ - 1)));
    } catch (const Error& problem) {
      fail(name_, ":", line, ": ", std::string_view(problem.what()));
    }
    advance(end + 1 - at_);
  }

  /// Length of digits with single underscores between them.
  template <class IsDigit>
  std::size_t digits_at(std::size_t from, IsDigit accepted) const {
    std::size_t at = from;
    const auto digit = [&](std::size_t i) { return i < text_.size() && accepted(text_[i]); };
    while (digit(at) || (at > from && at < text_.size() && text_[at] == '_' && digit(at + 1))) ++at;
    return at - from;
  }

  /// Length of a float at the position, 0 when it is an integer.
  std::size_t float_length() const {
    if (at_ > 0 && text_[at_ - 1] == '.') return 0;
    std::size_t at = at_ + digits_at(at_, is_digit);
    bool is_float = false;
    if (at < text_.size() && text_[at] == '.') {
      const std::size_t fraction = digits_at(at + 1, is_digit);
      is_float = fraction > 0;
      at += fraction > 0 ? 1 + fraction : 0;
    }
    if (at < text_.size() && (text_[at] | 0x20) == 'e') {
      const std::size_t sign =
          at + 1 < text_.size() && (text_[at + 1] == '+' || text_[at + 1] == '-') ? 1 : 0;
      const std::size_t exponent = digits_at(at + 1 + sign, is_digit);
      is_float = is_float || exponent > 0;
      at += exponent > 0 ? 1 + sign + exponent : 0;
    }
    return is_float ? at - at_ : 0;
  }

  std::size_t integer_length() const {
    if (text_[at_] != '0') return digits_at(at_, is_digit);
    const char letter = static_cast<char>(at_ + 1 < text_.size() ? text_[at_ + 1] | 0x20 : 0);
    const auto accepted = [letter](char c) {
      if (letter == 'b') return c == '0' || c == '1';
      if (letter == 'o') return c >= '0' && c <= '7';
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    if (letter == 'b' || letter == 'o' || letter == 'x') {
      const std::size_t underscore = at_ + 2 < text_.size() && text_[at_ + 2] == '_' ? 1 : 0;
      const std::size_t digits = digits_at(at_ + 2 + underscore, accepted);
      if (digits > 0) return 2 + underscore + digits;
    }
    return digits_at(at_, [](char c) { return c == '0'; });
  }

  void lex_number() {
    const std::size_t real = float_length();
    const std::size_t size = real > 0 ? real : integer_length();
    std::string text(rest().substr(0, size));
    if (real > 0) {
      const auto value = parse_float(text);
      if (!value.has_value()) error("bad number ", text);
      add(TokenKind::kFloat, text).real = *value;
    } else {
      std::optional<std::int64_t> value;
      try {
        value = parse_integer(text, 0);
      } catch (const Error& problem) {
        error(std::string_view(problem.what()));
      }
      if (!value.has_value()) error("bad number ", text);
      add(TokenKind::kInteger, text).integer = *value;
    }
    advance(size);
  }

  void lex_operator() {
    const auto found =
        std::find_if(kOperators.begin(), kOperators.end(), [&](std::string_view op) { return sees(op); });
    if (found == kOperators.end()) {
      const auto size = static_cast<std::size_t>(decode_valid_utf8(rest().data()).length);
      error("unexpected character '", rest().substr(0, size), "'");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty() || brackets_.back() != c) error("unexpected '", c, "'");
      brackets_.pop_back();
    }
    add(TokenKind::kOperator, std::string(*found));
    advance(found->size());
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the text that comes begins a line, as far as lstrip_blocks is concerned
  std::string brackets_;       // those that close the open ones
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
  if (!is_valid_utf8(source)) fail(name, ": not UTF-8");
  const std::string text = normalize_newlines(source);
  return Lexer(text, name).run();
}

}  // namespace asynct::jinja
