#include "asynct/text/regex_dialect.h"

#include <algorithm>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";  // PCRE2's own \w lacks marks

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdefABCDEF") == text.npos; }

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view what)
      : whole_(pattern), rest_(pattern), what_(what) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\')
        escape();
      else if (in_class_)
        class_member();
      else
        plain();
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    fail(what_, ": pattern \"", whole_, "\": ", construct, " is not supported");
  }
  void copy(std::size_t length) { replace(length, rest_.substr(0, length)); }
  void replace(std::size_t length, std::string_view text) {
    out_.append(text);
    rest_.remove_prefix(std::min(length, rest_.size()));
  }

  void escape() {
    switch (rest_.size() > 1 ? rest_[1] : '\0') {
      case 'w':
        return replace(2, in_class_ ? std::string(kWord) : cat('[', kWord, ']'));
      case 'W':
        if (in_class_) refuse("\\W in a character class");
        return replace(2, cat("[^", kWord, ']'));
      case 's':
        return replace(2, R"(\p{White_Space})");
      case 'S':
        return replace(2, R"(\P{White_Space})");
      case 'b':
        if (in_class_) return copy(2);  // a backspace
        return replace(2, cat("(?:(?<=[", kWord, "])(?![", kWord, "])|(?<![", kWord, "])(?=[", kWord, "]))"));
      case 'B':
        refuse("\\B");
      case 'h':
      case 'H':
        refuse("\\h (a hexadecimal digit there)");
      case 'u':
        if (rest_.size() < 6 || !is_hex(rest_.substr(2, 4))) refuse("\\u without four hexadecimal digits");
        return replace(6, cat("\\x{", rest_.substr(2, 4), "}"));
      case 'p':
      case 'P':
      case 'x':
        if (rest_.size() > 2 && rest_[2] == '{' && rest_.find('}') != rest_.npos)
          return copy(rest_.find('}') + 1);
        return copy(2);
      default:
        return copy(2);
    }
  }

  void class_member() {
    if (rest_.starts_with("&&")) refuse("an intersection of character classes (&&)");
    if (rest_.starts_with("[:")) refuse("a POSIX bracket ([:...:])");
    if (rest_[0] == '[') refuse("a character class within another");
    in_class_ = rest_[0] != ']';
    copy(1);
  }

  void plain() {
    if (rest_[0] == '[') {
      in_class_ = true;
      return copy(rest_.starts_with("[^") ? 2 : 1);
    }
    if (rest_.starts_with("(?")) {
      const std::size_t end = rest_.find_first_not_of("imxsadu-", 2);
      if (end != rest_.npos && end > 2 && (rest_[end] == ':' || rest_[end] == ')') &&
          rest_.substr(2, end - 2).find_first_not_of("ix-") != std::string_view::npos)
        refuse("an option other than i and x");
    }
    if (rest_[0] == '{') {
      const std::size_t end = rest_.find_first_not_of("0123456789,", 1);
      if (end != rest_.npos && rest_.substr(end).starts_with("}+")) refuse("+ after {n,m}");
    }
    copy(1);
  }

  std::string_view whole_;
  std::string_view rest_;
  std::string_view what_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, std::string_view what) {
  return Translator(pattern, what).run();
}

}  // namespace asynct
