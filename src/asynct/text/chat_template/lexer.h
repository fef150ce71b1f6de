#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace asynct::jinja {

enum class TokenKind : std::uint8_t {
  kText,           // between tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // its value, escapes replaced
  kInteger,
  kFloat,
  kOperator,  // brackets and punctuation too
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
};

/// The tokens of a template, with kEnd last; comments are gone, `raw` blocks are text, white space is
/// stripped as trim_blocks, lstrip_blocks and the signs in tags say. Errors name `name` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace asynct::jinja
