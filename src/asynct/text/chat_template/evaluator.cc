#include "asynct/text/chat_template/evaluator.h"

#include <algorithm>

#include "asynct/text/chat_template/access.h"
#include "asynct/text/chat_template/filters.h"
#include "asynct/text/chat_template/globals.h"
#include "asynct/text/chat_template/methods.h"
#include "asynct/text/chat_template/operators.h"

namespace asynct::jinja {
namespace {

constexpr std::pair<std::string_view, Global> kGlobals[] = {{"range", Global::kRange},
                                                            {"namespace", Global::kNamespace},
                                                            {"raise_exception", Global::kRaiseException},
                                                            {"strftime_now", Global::kStrftimeNow}};
constexpr int kLevelsOfDepth = 10;  // evaluations in each other that the limit on depth, of one text, allows

}  // namespace

const Value* Scope::find(NameId name) const {
  for (const auto& [id, value] : variables)
    if (id == name) return &value;
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  for (auto& [id, old] : variables) {
    if (id != name) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::~Evaluator() {
  for (const ScopePtr& scope : captured_) scope->variables.clear();
}

void Evaluator::bind_variables(const Json& variables) {
  if (!variables.is_object())
    fail("variables: expected an object, found ", std::string_view(variables.type_name()));
  context_.resize(program_.names.size());
  for (std::size_t i = 0; i < context_.size(); ++i) {
    const std::string& name = program_.names[i];
    if (const auto found = variables.find(name); found != variables.end()) {
      context_[i] = runtime_.from_json(*found);
    } else {
      for (const auto& [global_name, global] : kGlobals)
        if (name == global_name) context_[i] = Value(global);
    }
  }
}

std::string Evaluator::run(const Json& variables) {
  bind_variables(variables);
  std::string out;
  out_ = &out;
  execute(program_.root.statements, enter(nullptr, program_.root));
  return out;
}

Value Evaluator::look_up(NameId name, const Scope& scope) const {
  for (const Scope* s = &scope; s != nullptr; s = s->parent.get())
    if (const Value* found = s->find(name)) return *found;
  const auto& found = context_[static_cast<std::size_t>(name)];
  return found.has_value()
             ? *found
             : undefined(cat("'", program_.names[static_cast<std::size_t>(name)], "' is undefined"));
}

ScopePtr Evaluator::enter(const ScopePtr& parent, const ScopedBody& body) {
  auto scope = std::make_shared<Scope>(Scope{parent, {}});
  declare_undefined(*scope, body);
  return scope;
}

void Evaluator::declare_undefined(Scope& scope, const ScopedBody& body) {
  runtime_.step(body.undefined.size());
  for (const NameId name : body.undefined)
    scope.variables.emplace_back(
        name, undefined(cat("'", program_.names[static_cast<std::size_t>(name)], "' is undefined")));
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.name < 0) {
    const std::vector<Value> values = runtime_.elements(value);
    if (values.size() != target.elements.size())
      fail("expected ", target.elements.size(), " values to assign, found ", values.size());
    for (std::size_t i = 0; i < values.size(); ++i) assign(target.elements[i], values[i], scope);
  } else if (target.attribute.empty()) {
    scope.set(target.name, value);
  } else {
    Namespace* space = look_up(target.name, scope).name_space();
    if (space == nullptr) fail("cannot assign an attribute of something that is no namespace");
    if (Value* known = space->find(target.attribute)) {
      *known = value;
    } else {
      runtime_.allocate(sizeof(Value) + target.attribute.size());
      space->attributes.emplace_back(target.attribute, value);
    }
  }
}

Value Evaluator::target_value(const Target& target, const Scope& scope) {
  if (target.name >= 0) return look_up(target.name, scope);
  std::vector<Value> items;
  for (const Target& element : target.elements) items.push_back(target_value(element, scope));
  return runtime_.tuple(std::move(items));
}

void Evaluator::check_output() const {
  if (out_->size() > program_.options.limits.output_bytes)
    fail("more than ", program_.options.limits.output_bytes, " bytes of output");
}

void Evaluator::check_depth() const {
  const int limit = kLevelsOfDepth * program_.options.limits.depth;
  if (depth_ >= limit) fail("evaluation nested deeper than ", limit, " levels");
}

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePtr& scope) {
  check_depth();
  ++depth_;  // not restored by exceptions, which end the run
  Flow flow = Flow::kNext;
  for (std::size_t i = 0; i < body.size() && flow == Flow::kNext; ++i) {
    line_ = body[i]->line;
    runtime_.step();
    flow = std::visit([&](const auto& node) { return execute_node(node, scope); }, body[i]->node);
  }
  --depth_;
  return flow;
}

Evaluator::Flow Evaluator::execute_node(const Text& node, const ScopePtr&) {
  runtime_.allocate(node.text.size());
  *out_ += node.text;
  check_output();
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_node(const Output& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.value, scope);
  append_str(runtime_, *out_, value);
  check_output();
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_node(const If& node, const ScopePtr& scope) {
  for (const auto& [condition, body] : node.branches)
    if (truth(evaluate(*condition, scope))) return execute(body, scope);
  return execute(node.otherwise, scope);
}

/// The elements that the loop's `if` accepts, as they are asked for.
std::shared_ptr<Iterator> Evaluator::filtered(const For& node, std::shared_ptr<Iterator> source,
                                              const ScopePtr& scope) {
  const int depth = source->depth + 1;
  auto next = [this, &node, source = std::move(source), scope]() -> std::optional<Value> {
    while (const auto element = source->next()) {
      runtime_.step();
      const auto inner = std::make_shared<Scope>(Scope{scope, {}});
      assign(node.target, *element, *inner);
      if (truth(evaluate(*node.condition, inner))) return target_value(node.target, *inner);
    }
    return std::nullopt;
  };
  return *runtime_.iterator(std::move(next), depth).as<std::shared_ptr<Iterator>>();
}

Evaluator::Flow Evaluator::execute_node(const For& node, const ScopePtr& scope) {
  const Value iterable = evaluate(*node.iterable, scope);
  auto source = runtime_.iterate(iterable);
  const bool is_filtered = node.condition != nullptr;
  if (is_filtered) source = filtered(node, std::move(source), scope);
  const int loop_depth = source->depth + 1;
  if (loop_depth > program_.options.limits.depth)
    fail("values nested deeper than ", program_.options.limits.depth);
  const auto loop = std::make_shared<Loop>(
      std::move(source), is_filtered ? std::nullopt : runtime_.length(iterable), loop_depth);
  runtime_.allocate(sizeof(Loop) + sizeof(Scope));

  const struct Finish {
    Loop& loop;
    ~Finish() { loop.finish(); }
  } finish{*loop};
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  bool completed = false;  // break and continue do not count, as in jinja2
  while (const auto element = loop->advance()) {
    runtime_.step();
    inner->variables.clear();
    declare_undefined(*inner, node.body);
    inner->set(kLoopName, loop);
    assign(node.target, *element, *inner);
    const Flow flow = execute(node.body.statements, inner);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  if (completed || node.otherwise.statements.empty()) return Flow::kNext;
  return execute(node.otherwise.statements, enter(scope, node.otherwise));
}

Evaluator::Flow Evaluator::execute_node(const Assign& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.value, scope);
  assign(node.target, value, *scope);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_node(const AssignBlock& node, const ScopePtr& scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Flow flow = execute(node.body.statements, enter(scope, node.body));
  out_ = outer;
  if (flow == Flow::kNext) assign(node.target, runtime_.string(std::move(text)), *scope);
  return flow;
}

Evaluator::Flow Evaluator::execute_node(const MacroDefinition& node, const ScopePtr& scope) {
  runtime_.allocate(sizeof(Macro) + sizeof(ScopePtr));
  captured_.push_back(scope);
  scope->set(node.name, std::make_shared<const Macro>(Macro{&node, scope}));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_node(const Generation& node, const ScopePtr& scope) {
  return execute(node.body.statements, enter(scope, node.body));
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const auto& parameters = macro.definition->parameters;
  const std::string& name = program_.names[static_cast<std::size_t>(macro.definition->name)];
  const auto name_of = [&](std::size_t i) -> const std::string& {
    return program_.names[static_cast<std::size_t>(parameters[i].name)];
  };
  if (arguments.positional.size() > parameters.size())
    fail("macro ", name, ": ", arguments.positional.size(), " arguments, at most ", parameters.size(),
         " expected");
  if (macro_depth_ >= program_.options.limits.depth)
    fail("macro ", name, ": calls nested deeper than ", macro_depth_);

  const ScopePtr scope = enter(macro.scope, macro.definition->body);
  std::vector<bool> given(parameters.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    given[i] = i < arguments.positional.size();
    scope->set(parameters[i].name, given[i]
                                       ? std::move(arguments.positional[i])
                                       : undefined(cat("parameter '", name_of(i), "' was not provided")));
  }
  for (auto& [key, value] : arguments.named) {
    std::size_t i = arguments.positional.size();
    while (i < parameters.size() && name_of(i) != key) ++i;
    if (i == parameters.size()) fail("macro ", name, ": no free parameter is named ", key);
    scope->set(parameters[i].name, std::move(value));
    given[i] = true;
  }
  ++macro_depth_;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!given[i] && parameters[i].default_value != nullptr)
      scope->set(parameters[i].name, evaluate(*parameters[i].default_value, scope));
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  execute(macro.definition->body.statements, scope);
  out_ = outer;
  --macro_depth_;
  return runtime_.string(std::move(text));
}

Value Evaluator::call_global(Global global, Arguments arguments) {
  switch (global) {
    case Global::kRange:
      return make_range(runtime_, std::move(arguments));
    case Global::kNamespace:
      return make_namespace(runtime_, std::move(arguments));
    case Global::kStrftimeNow:
      return format_now(runtime_, std::move(arguments));
    case Global::kRaiseException: {
      const Parameters p("raise_exception", std::move(arguments), {"message"}, 1);
      throw RaisedByTemplate{to_str(runtime_, *p[0])};
    }
  }
  return {};
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  if (const auto* macro = callee.as<std::shared_ptr<const Macro>>())
    return call_macro(**macro, std::move(arguments));
  if (const auto* method = callee.as<Method>()) return call_method(runtime_, *method, std::move(arguments));
  if (const auto* global = callee.as<Global>()) return call_global(*global, std::move(arguments));
  if (const auto* hole = callee.as<Undefined>()) fail(*hole->why);
  fail(type_name(callee), " cannot be called");
}

}  // namespace asynct::jinja
