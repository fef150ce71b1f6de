#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "asynct/text/chat_template/arguments.h"
#include "asynct/text/chat_template/ast.h"
#include "asynct/text/chat_template/runtime.h"

namespace asynct::jinja {

/// Variables of a body, and the bodies around it in the template's text.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> variables;

  const Value* find(NameId name) const;  // here, not further out
  void set(NameId name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

struct Macro {
  const MacroDefinition* definition;
  ScopePtr scope;  // that it was defined in
};

/// The variable `loop`.
struct Loop {
 public:
  /// Elements of `source`, whose number is known, or not (generators).
  Loop(std::shared_ptr<Iterator> source, std::optional<std::int64_t> length, int depth)
      : source_(std::move(source)), length_(length), depth_(depth) {}

  /// Goes to the next element. The loop ends when there is none.
  std::optional<Value> advance();
  /// Lets go of what is not read yet, once the loop is over.
  void finish() { source_ = nullptr; }

  std::int64_t length(Runtime& runtime);
  std::optional<Value> attribute(Runtime& runtime, std::string_view name);
  int depth() const { return depth_; }

 private:
  std::optional<Value> next() { return source_ == nullptr ? std::nullopt : source_->next(); }
  const Value* peek();

  std::shared_ptr<Iterator> source_;
  std::deque<Value> ahead_;  // read from source_ before their time
  std::optional<std::int64_t> length_;
  std::int64_t index0_ = -1;
  Value previous_, current_;
  int depth_;
};

/// What raise_exception throws.
struct RaisedByTemplate {
  std::string message;
};

/// One run of a template.
class Evaluator {
 public:
  explicit Evaluator(const Program& program) : program_(program), runtime_(program.options) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  std::string run(const Json& variables);
  int line() const { return line_; }  // of what is evaluated, for messages

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow execute(const Body& body, const ScopePtr& scope);
  Flow execute_node(const Text& node, const ScopePtr& scope);
  Flow execute_node(const Output& node, const ScopePtr& scope);
  Flow execute_node(const If& node, const ScopePtr& scope);
  Flow execute_node(const For& node, const ScopePtr& scope);
  Flow execute_node(const Assign& node, const ScopePtr& scope);
  Flow execute_node(const AssignBlock& node, const ScopePtr& scope);
  Flow execute_node(const MacroDefinition& node, const ScopePtr& scope);
  Flow execute_node(const Generation& node, const ScopePtr& scope);
  Flow execute_node(const Break&, const ScopePtr&) { return Flow::kBreak; }
  Flow execute_node(const Continue&, const ScopePtr&) { return Flow::kContinue; }

  Value evaluate(const Expr& expr, const ScopePtr& scope);
  Value evaluate_node(const Literal& node, const ScopePtr&) { return node.value; }
  Value evaluate_node(const Name& node, const ScopePtr& scope) { return look_up(node.id, *scope); }
  Value evaluate_node(const SequenceDisplay& node, const ScopePtr& scope);
  Value evaluate_node(const DictDisplay& node, const ScopePtr& scope);
  Value evaluate_node(const Unary& node, const ScopePtr& scope);
  Value evaluate_node(const Arithmetic& node, const ScopePtr& scope);
  Value evaluate_node(const Concat& node, const ScopePtr& scope);
  Value evaluate_node(const Logic& node, const ScopePtr& scope);
  Value evaluate_node(const Comparison& node, const ScopePtr& scope);
  Value evaluate_node(const Conditional& node, const ScopePtr& scope);
  Value evaluate_node(const Attribute& node, const ScopePtr& scope);
  Value evaluate_node(const Item& node, const ScopePtr& scope);
  Value evaluate_node(const Slice& node, const ScopePtr& scope);
  Value evaluate_node(const Call& node, const ScopePtr& scope);
  Value evaluate_node(const FilterCall& node, const ScopePtr& scope);
  Value evaluate_node(const TestCall& node, const ScopePtr& scope);
  Arguments evaluate_arguments(const CallArguments& arguments, const ScopePtr& scope);

  Value look_up(NameId name, const Scope& scope) const;
  ScopePtr enter(const ScopePtr& parent, const ScopedBody& body);
  void declare_undefined(Scope& scope, const ScopedBody& body);  // whose scope is new
  void assign(const Target& target, const Value& value, Scope& scope);
  Value target_value(const Target& target, const Scope& scope);
  std::shared_ptr<Iterator> filtered(const For& node, std::shared_ptr<Iterator> source,
                                     const ScopePtr& scope);

  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const Macro& macro, Arguments arguments);
  Value call_global(Global global, Arguments arguments);
  void bind_variables(const Json& variables);
  void check_output() const;
  void check_depth() const;

  const Program& program_;
  Runtime runtime_;
  std::vector<std::optional<Value>> context_;  // variables of the caller and globals, by name
  std::vector<ScopePtr> captured_;             // by macros, which they may hold
  std::string* out_ = nullptr;
  int line_ = 0;
  int depth_ = 0;        // expressions and bodies in evaluation
  int macro_depth_ = 0;  // calls in each other
};

}  // namespace asynct::jinja
