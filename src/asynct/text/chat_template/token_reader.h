#pragma once

#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/text/chat_template/lexer.h"

namespace asynct::jinja {

/// The tokens of a template, from one to the next.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  Token take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const { return is(current(), TokenKind::kOperator, op); }
  bool at_name(std::string_view word) const { return is(current(), TokenKind::kName, word); }
  static bool is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }

  bool skip_operator(std::string_view op) { return at_operator(op) && skip(); }
  bool skip_name(std::string_view word) { return at_name(word) && skip(); }

  void expect_operator(std::string_view op) {
    if (!skip_operator(op)) error("expected '", op, "', found ", describe());
  }
  void expect_name(std::string_view word) {
    if (!skip_name(word)) error("expected ", word, ", found ", describe());
  }
  Token expect(TokenKind kind, std::string_view what) {
    if (!at(kind)) error("expected ", what, ", found ", describe());
    return take();
  }

  std::string describe() const {
    switch (current().kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return cat("'", current().text, "'");
    }
  }

  template <class... Parts>
  [[noreturn]] void error_at(int line, const Parts&... parts) const {
    fail(name_, ":", line, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    error_at(line(), parts...);
  }

 private:
  bool skip() {
    take();
    return true;
  }

  std::vector<Token> tokens_;
  std::string_view name_;
  std::size_t at_ = 0;
};

}  // namespace asynct::jinja
