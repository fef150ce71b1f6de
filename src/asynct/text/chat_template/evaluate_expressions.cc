#include "asynct/text/chat_template/access.h"
#include "asynct/text/chat_template/evaluator.h"
#include "asynct/text/chat_template/filters.h"
#include "asynct/text/chat_template/operators.h"

namespace asynct::jinja {

Value Evaluator::evaluate(const Expr& expr, const ScopePtr& scope) {
  check_depth();
  ++depth_;  // not restored by exceptions, which end the run
  line_ = expr.line;
  runtime_.step();
  Value value = std::visit([&](const auto& node) { return evaluate_node(node, scope); }, expr.node);
  --depth_;
  return value;
}

Value Evaluator::evaluate_node(const SequenceDisplay& node, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) items.push_back(evaluate(*item, scope));
  return node.is_tuple ? runtime_.tuple(std::move(items)) : runtime_.list(std::move(items));
}

Value Evaluator::evaluate_node(const DictDisplay& node, const ScopePtr& scope) {
  Dict dict;
  for (const auto& [key_expr, value_expr] : node.items) {
    Value key = evaluate(*key_expr, scope);
    check_hashable(key);
    dict.set(std::move(key), evaluate(*value_expr, scope));
  }
  return runtime_.dict(std::move(dict));
}

Value Evaluator::evaluate_node(const Unary& node, const ScopePtr& scope) {
  const Value operand = evaluate(*node.operand, scope);
  if (node.op == UnaryOp::kNot) return !truth(operand);
  return node.op == UnaryOp::kNegate ? negate(operand) : plus(operand);
}

Value Evaluator::evaluate_node(const Arithmetic& node, const ScopePtr& scope) {
  Value value = evaluate(*node.first, scope);
  for (const auto& [op, operand] : node.rest)
    value = arithmetic(runtime_, op, value, evaluate(*operand, scope));
  return value;
}

Value Evaluator::evaluate_node(const Concat& node, const ScopePtr& scope) {
  std::string text;
  for (const ExprPtr& part : node.parts) append_str(runtime_, text, evaluate(*part, scope));
  return runtime_.string(std::move(text));
}

Value Evaluator::evaluate_node(const Logic& node, const ScopePtr& scope) {
  Value value;
  for (const ExprPtr& operand : node.operands) {
    value = evaluate(*operand, scope);
    if (truth(value) == node.is_or) break;
  }
  return value;
}

Value Evaluator::evaluate_node(const Comparison& node, const ScopePtr& scope) {
  Value left = evaluate(*node.first, scope);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand, scope);
    if (!compare(runtime_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::evaluate_node(const Conditional& node, const ScopePtr& scope) {
  if (truth(evaluate(*node.test, scope))) return evaluate(*node.yes, scope);
  if (node.no != nullptr) return evaluate(*node.no, scope);
  return undefined("an if without else whose condition is false has no value");
}

Value Evaluator::evaluate_node(const Attribute& node, const ScopePtr& scope) {
  return get_attribute(runtime_, evaluate(*node.object, scope), node.name);
}

Value Evaluator::evaluate_node(const Item& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.object, scope);
  return get_item(runtime_, object, evaluate(*node.key, scope));
}

Value Evaluator::evaluate_node(const Slice& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.object, scope);
  std::optional<Value> bounds[3];
  const ExprPtr* const parts[3] = {&node.start, &node.stop, &node.step};
  for (std::size_t i = 0; i < 3; ++i)
    if (*parts[i] != nullptr) bounds[i] = evaluate(**parts[i], scope);
  const auto bound = [&](std::size_t i) { return bounds[i].has_value() ? &*bounds[i] : nullptr; };
  return get_slice(runtime_, object, bound(0), bound(1), bound(2));
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope) {
  Arguments out;
  for (const ExprPtr& argument : arguments.positional) out.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : arguments.named)
    out.named.emplace_back(name, evaluate(*argument, scope));
  return out;
}

Value Evaluator::evaluate_node(const Call& node, const ScopePtr& scope) {
  const Value callee = evaluate(*node.callee, scope);
  return call(callee, evaluate_arguments(node.arguments, scope));
}

Value Evaluator::evaluate_node(const FilterCall& node, const ScopePtr& scope) {
  const Value input = evaluate(*node.input, scope);
  return node.filter->apply(runtime_, input, evaluate_arguments(node.arguments, scope));
}

Value Evaluator::evaluate_node(const TestCall& node, const ScopePtr& scope) {
  const Value input = evaluate(*node.input, scope);
  return node.test->apply(runtime_, input, evaluate_arguments(node.arguments, scope));
}

}  // namespace asynct::jinja
