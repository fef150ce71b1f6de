#include "asynct/text/chat_template/expression_parser.h"

#include <algorithm>
#include <initializer_list>

#include "asynct/text/chat_template/filters.h"
#include "asynct/text/chat_template/methods.h"

namespace asynct::jinja {
namespace {

// Globals of Jinja that are not supported.
constexpr std::string_view kRefusedGlobals[] = {"dict", "lipsum", "cycler", "joiner"};

constexpr std::size_t kMostNames = 4096;      // of one template; they are looked up one by one
constexpr std::size_t kMostArguments = 1000;  // of one call

int depth_of_all(std::initializer_list<const ExprPtr*> parts) {
  int depth = 0;
  for (const ExprPtr* part : parts)
    if (*part != nullptr) depth = std::max(depth, (*part)->depth);
  return depth;
}
int depth_of_all(const std::vector<ExprPtr>& parts) {
  int depth = 0;
  for (const ExprPtr& part : parts) depth = std::max(depth, part->depth);
  return depth;
}
template <class Key>
int depth_of_all(const std::vector<std::pair<Key, ExprPtr>>& parts) {
  int depth = 0;
  for (const auto& part : parts) depth = std::max(depth, part.second->depth);
  return depth;
}
int depth_of_all(const CallArguments& arguments) {
  return std::max(depth_of_all(arguments.positional), depth_of_all(arguments.named));
}

int depth_below(const Literal&) { return 0; }
int depth_below(const Name&) { return 0; }
int depth_below(const SequenceDisplay& node) { return depth_of_all(node.items); }
int depth_below(const DictDisplay& node) {
  int depth = depth_of_all(node.items);
  for (const auto& [key, value] : node.items) depth = std::max(depth, key->depth);
  return depth;
}
int depth_below(const Unary& node) { return node.operand->depth; }
int depth_below(const Arithmetic& node) { return std::max(node.first->depth, depth_of_all(node.rest)); }
int depth_below(const Comparison& node) { return std::max(node.first->depth, depth_of_all(node.rest)); }
int depth_below(const Concat& node) { return depth_of_all(node.parts); }
int depth_below(const Logic& node) { return depth_of_all(node.operands); }
int depth_below(const Conditional& node) { return depth_of_all({&node.test, &node.yes, &node.no}); }
int depth_below(const Attribute& node) { return node.object->depth; }
int depth_below(const Item& node) { return depth_of_all({&node.object, &node.key}); }
int depth_below(const Slice& node) {
  return depth_of_all({&node.object, &node.start, &node.stop, &node.step});
}
int depth_below(const Call& node) { return std::max(node.callee->depth, depth_of_all(node.arguments)); }
int depth_below(const FilterCall& node) { return std::max(node.input->depth, depth_of_all(node.arguments)); }
int depth_below(const TestCall& node) { return std::max(node.input->depth, depth_of_all(node.arguments)); }

}  // namespace

template <class Node>
ExprPtr ExpressionParser::make(int line, Node node) {
  const int depth = depth_below(node) + 1;
  if (depth > max_depth_) tokens_.error_at(line, "an expression nested deeper than ", max_depth_, " levels");
  return std::make_unique<const Expr>(Expr{line, depth, std::move(node)});
}

NameId ExpressionParser::intern(const std::string& name) {
  const auto [at, added] = ids_.emplace(name, static_cast<NameId>(names_.size()));
  if (added) names_.push_back(name);
  if (names_.size() > kMostNames) tokens_.error("more than ", kMostNames, " different names");
  return at->second;
}

ExprPtr ExpressionParser::parse(bool conditional) {
  const Level level(*this);
  const int line = tokens_.line();
  ExprPtr expr = parse_or();
  while (conditional && tokens_.skip_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr no = tokens_.skip_name("else") ? parse() : nullptr;
    expr = make(line, Conditional{std::move(test), std::move(expr), std::move(no)});
  }
  return expr;
}

ExprPtr ExpressionParser::tuple_or_one(bool conditional, bool in_parentheses, std::string_view end) {
  const int line = tokens_.line();
  const auto ends = [&] {
    return tokens_.at(TokenKind::kVariableEnd) || tokens_.at(TokenKind::kBlockEnd) ||
           tokens_.at_operator(")") || (!end.empty() && tokens_.at_name(end));
  };
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!ends()) {
    items.push_back(parse(conditional));
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_parentheses) tokens_.error("expected an expression, found ", tokens_.describe());
  return make(line, SequenceDisplay{true, std::move(items)});
}

ExprPtr ExpressionParser::parse_or() {
  const int line = tokens_.line();
  std::vector<ExprPtr> operands;
  do {
    operands.push_back(parse_and());
  } while (tokens_.skip_name("or"));
  return operands.size() == 1 ? std::move(operands.front()) : make(line, Logic{true, std::move(operands)});
}

ExprPtr ExpressionParser::parse_and() {
  const int line = tokens_.line();
  std::vector<ExprPtr> operands;
  do {
    operands.push_back(parse_not());
  } while (tokens_.skip_name("and"));
  return operands.size() == 1 ? std::move(operands.front()) : make(line, Logic{false, std::move(operands)});
}

ExprPtr ExpressionParser::parse_not() {
  const int line = tokens_.line();
  if (!tokens_.skip_name("not")) return parse_comparison();
  const Level level(*this);
  return make(line, Unary{UnaryOp::kNot, parse_not()});
}

ExprPtr ExpressionParser::parse_comparison() {
  constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},        {"!=", CompareOp::kNotEqual}, {"<=", CompareOp::kLessEqual},
      {">=", CompareOp::kGreaterEqual}, {"<", CompareOp::kLess},      {">", CompareOp::kGreater}};
  const int line = tokens_.line();
  Comparison chain{parse_sum(), {}};
  for (;;) {
    const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                     [&](const auto& op) { return tokens_.at_operator(op.first); });
    if (found != std::end(kOps)) {
      tokens_.take();
      chain.rest.emplace_back(found->second, parse_sum());
    } else if (tokens_.skip_name("in")) {
      chain.rest.emplace_back(CompareOp::kIn, parse_sum());
    } else if (tokens_.at_name("not") && TokenReader::is(tokens_.following(), TokenKind::kName, "in")) {
      tokens_.take();
      tokens_.take();
      chain.rest.emplace_back(CompareOp::kNotIn, parse_sum());
    } else {
      break;
    }
  }
  return chain.rest.empty() ? std::move(chain.first) : make(line, std::move(chain));
}

ExprPtr ExpressionParser::parse_sum() {
  const int line = tokens_.line();
  Arithmetic chain{parse_concat(), {}};
  while (tokens_.at_operator("+") || tokens_.at_operator("-")) {
    const BinaryOp op = tokens_.take().text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    chain.rest.emplace_back(op, parse_concat());
  }
  return chain.rest.empty() ? std::move(chain.first) : make(line, std::move(chain));
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  do {
    parts.push_back(parse_product());
  } while (tokens_.skip_operator("~"));
  return parts.size() == 1 ? std::move(parts.front()) : make(line, Concat{std::move(parts)});
}

ExprPtr ExpressionParser::parse_product() {
  constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMultiply},
                                                            {"/", BinaryOp::kDivide},
                                                            {"//", BinaryOp::kFloorDivide},
                                                            {"%", BinaryOp::kModulo}};
  const int line = tokens_.line();
  Arithmetic chain{parse_power(), {}};
  for (;;) {
    const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                     [&](const auto& op) { return tokens_.at_operator(op.first); });
    if (found == std::end(kOps)) break;
    const auto* text = std::get_if<Literal>(&chain.first->node);
    if (found->second == BinaryOp::kModulo && text != nullptr && text->value.string() != nullptr)
      tokens_.error("formatting of strings by % is not supported");
    tokens_.take();
    chain.rest.emplace_back(found->second, parse_power());
  }
  return chain.rest.empty() ? std::move(chain.first) : make(line, std::move(chain));
}

ExprPtr ExpressionParser::parse_power() {
  const int line = tokens_.line();
  Arithmetic chain{parse_unary(), {}};
  while (tokens_.skip_operator("**")) chain.rest.emplace_back(BinaryOp::kPower, parse_unary());
  return chain.rest.empty() ? std::move(chain.first) : make(line, std::move(chain));
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = tokens_.line();
  ExprPtr expr;
  if (tokens_.at_operator("-") || tokens_.at_operator("+")) {
    const Level level(*this);
    const UnaryOp op = tokens_.take().text == "-" ? UnaryOp::kNegate : UnaryOp::kPlus;
    expr = make(line, Unary{op, parse_unary(false)});
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (tokens_.at_operator(".")) {
      expr = parse_attribute(std::move(expr));
    } else if (tokens_.at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (tokens_.at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr expr) {
  for (;;) {
    if (tokens_.at_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (tokens_.at_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (tokens_.at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_primary() {
  const int line = tokens_.line();
  switch (tokens_.current().kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (tokens_.at(TokenKind::kString)) text += tokens_.take().text;
      return make(line, Literal{std::make_shared<const String>(String{std::move(text)})});
    }
    case TokenKind::kInteger:
      return make(line, Literal{tokens_.take().integer});
    case TokenKind::kFloat:
      return make(line, Literal{tokens_.take().real});
    default:
      break;
  }
  if (tokens_.skip_operator("(")) {
    ExprPtr inner = tuple_or_one(true, true, {});
    tokens_.expect_operator(")");
    return inner;
  }
  if (tokens_.at_operator("[")) return parse_list();
  if (tokens_.at_operator("{")) return parse_dict();
  tokens_.error("expected an expression, found ", tokens_.describe());
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = tokens_.take();
  if (token.text == "true" || token.text == "True") return make(token.line, Literal{true});
  if (token.text == "false" || token.text == "False") return make(token.line, Literal{false});
  if (token.text == "none" || token.text == "None") return make(token.line, Literal{});
  if (functions_ > 0 && (token.text == "caller" || token.text == "varargs" || token.text == "kwargs"))
    tokens_.error_at(token.line, "the variable ", token.text, " of macros is not supported");
  return make(token.line, Name{intern(token.text)});
}

ExprPtr ExpressionParser::parse_list() {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  std::vector<ExprPtr> items;
  while (!tokens_.at_operator("]")) {
    items.push_back(parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return make(line, SequenceDisplay{false, std::move(items)});
}

ExprPtr ExpressionParser::parse_dict() {
  const int line = tokens_.line();
  tokens_.expect_operator("{");
  DictDisplay dict;
  while (!tokens_.at_operator("}")) {
    ExprPtr key = parse();
    tokens_.expect_operator(":");
    dict.items.emplace_back(std::move(key), parse());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return make(line, std::move(dict));
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator(".");
  if (tokens_.at(TokenKind::kInteger)) {
    ExprPtr key = make(line, Literal{tokens_.take().integer});
    return make(line, Item{std::move(object), std::move(key)});
  }
  std::string name = tokens_.expect(TokenKind::kName, "a name or number after '.'").text;
  if (name.starts_with("__")) tokens_.error_at(line, "the attribute ", name, " is not supported");
  return make(line, Attribute{std::move(object), std::move(name)});
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = tokens_.line();
  tokens_.expect_operator("[");
  ExprPtr parts[3];
  int colons = 0;
  for (;;) {
    if (!tokens_.at_operator(":") && !tokens_.at_operator("]")) parts[colons] = parse();
    if (colons == 2 || !tokens_.skip_operator(":")) break;
    ++colons;
  }
  if (tokens_.at_operator(",")) tokens_.error("subscripts with a comma are not supported");
  tokens_.expect_operator("]");
  if (colons > 0)
    return make(line,
                Slice{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
  if (parts[0] == nullptr) tokens_.error_at(line, "empty subscript");
  return make(line, Item{std::move(object), std::move(parts[0])});
}

CallArguments ExpressionParser::parse_arguments() {
  tokens_.expect_operator("(");
  CallArguments arguments;
  while (!tokens_.at_operator(")")) {
    if (arguments.positional.size() + arguments.named.size() == kMostArguments)
      tokens_.error("more than ", kMostArguments, " arguments");
    if (tokens_.at_operator("*") || tokens_.at_operator("**"))
      tokens_.error("arguments by '", tokens_.current().text, "' are not supported");
    if (tokens_.at(TokenKind::kName) && TokenReader::is(tokens_.following(), TokenKind::kOperator, "=")) {
      std::string name = tokens_.take().text;
      tokens_.take();
      for (const auto& [other, value] : arguments.named)
        if (other == name) tokens_.error("the argument ", name, " is given twice");
      arguments.named.emplace_back(std::move(name), parse());
    } else {
      if (!arguments.named.empty()) tokens_.error("an argument without a name follows one with a name");
      arguments.positional.push_back(parse());
    }
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

void ExpressionParser::check_callee(const Expr& callee, int line) const {
  if (const auto* attribute = std::get_if<Attribute>(&callee.node)) {
    if (is_refused_method(attribute->name))
      tokens_.error_at(line, "the method ", attribute->name, "() is not supported");
  } else if (const auto* name = std::get_if<Name>(&callee.node)) {
    const std::string& text = names_[static_cast<std::size_t>(name->id)];
    if (std::find(std::begin(kRefusedGlobals), std::end(kRefusedGlobals), text) != std::end(kRefusedGlobals))
      tokens_.error_at(line, "the function ", text, "() is not supported");
  }
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const int line = tokens_.line();
  check_callee(*callee, line);
  CallArguments arguments = parse_arguments();
  return make(line, Call{std::move(callee), std::move(arguments)});
}

std::string ExpressionParser::dotted_name(std::string_view what) {
  std::string name = tokens_.expect(TokenKind::kName, what).text;
  while (tokens_.skip_operator(".")) name += cat('.', tokens_.expect(TokenKind::kName, what).text);
  return name;
}

/// The filter that map() applies and the test of select() and its like, when the template spells them out.
void ExpressionParser::check_inner_name(std::string_view filter, const CallArguments& arguments,
                                        int line) const {
  const bool by_attribute = filter == "selectattr" || filter == "rejectattr";
  const bool is_test = by_attribute || filter == "select" || filter == "reject";
  const std::size_t at = by_attribute ? 1 : 0;
  if ((!is_test && filter != "map") || arguments.positional.size() <= at) return;
  const auto* literal = std::get_if<Literal>(&arguments.positional[at]->node);
  const String* name = literal == nullptr ? nullptr : literal->value.string();
  if (name == nullptr) return;
  if (is_test ? find_test(name->text) == nullptr : find_filter(name->text) == nullptr)
    tokens_.error_at(line, "the ", is_test ? "test" : "filter", " \"", name->text, "\" is not supported");
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  tokens_.expect_operator("|");
  const int line = tokens_.line();
  const std::string name = dotted_name("the name of a filter");
  const Filter* filter = find_filter(name);
  if (filter == nullptr) tokens_.error_at(line, "the filter \"", name, "\" is not supported");
  CallArguments arguments;
  if (tokens_.at_operator("(")) arguments = parse_arguments();
  check_inner_name(name, arguments, line);
  return make(line, FilterCall{std::move(input), filter, std::move(arguments)});
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  const int line = tokens_.line();
  tokens_.expect_name("is");
  const bool negated = tokens_.skip_name("not");
  const std::string name = dotted_name("the name of a test");
  const Test* test = find_test(name);
  if (test == nullptr) tokens_.error_at(line, "the test \"", name, "\" is not supported");
  CallArguments arguments;
  const TokenKind kind = tokens_.current().kind;
  if (tokens_.at_operator("(")) {
    arguments = parse_arguments();
  } else if ((kind == TokenKind::kName && !tokens_.at_name("else") && !tokens_.at_name("or") &&
              !tokens_.at_name("and")) ||
             kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             tokens_.at_operator("[") || tokens_.at_operator("{")) {
    if (tokens_.at_name("is")) tokens_.error("a test follows a test");
    const Level level(*this);
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExprPtr expr = make(line, TestCall{std::move(input), test, std::move(arguments)});
  return negated ? make(line, Unary{UnaryOp::kNot, std::move(expr)}) : std::move(expr);
}

}  // namespace asynct::jinja
