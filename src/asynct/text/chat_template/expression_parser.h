#pragma once

#include <map>
#include <string>
#include <vector>

#include "asynct/text/chat_template/ast.h"
#include "asynct/text/chat_template/token_reader.h"

namespace asynct::jinja {

/// Parses expressions, by Jinja's grammar and precedence.
class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, std::vector<std::string>& names, int max_depth)
      : tokens_(tokens), names_(names), max_depth_(max_depth) {}

  /// One expression. Without `conditional`, an `if` ends it.
  ExprPtr parse(bool conditional = true);

  /// An expression, or several with commas between them as a tuple. `end` is a word that may follow a last
  /// comma.
  ExprPtr parse_tuple(bool conditional = true, std::string_view end = {}) {
    return tuple_or_one(conditional, false, end);
  }

  NameId intern(const std::string& name);

  /// Inside of a macro, Jinja gives the names caller, varargs and kwargs a meaning that is not supported.
  void enter_function() { ++functions_; }
  void leave_function() { --functions_; }

  /// Guards against deep recursion: one for each level of brackets or blocks.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.level_ > parser_.max_depth_)
        parser_.tokens_.error("nested deeper than ", parser_.max_depth_, " levels");
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  template <class Node>
  ExprPtr make(int line, Node node);
  ExprPtr tuple_or_one(bool conditional, bool in_parentheses, std::string_view end);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  CallArguments parse_arguments();
  void check_callee(const Expr& callee, int line) const;
  void check_inner_name(std::string_view filter, const CallArguments& arguments, int line) const;
  std::string dotted_name(std::string_view what);

  TokenReader& tokens_;
  std::vector<std::string>& names_;
  std::map<std::string, NameId> ids_;
  int max_depth_;
  int level_ = 0;
  int functions_ = 0;  // around the position
};

}  // namespace asynct::jinja
