#include "asynct/text/chat_template/scopes.h"

#include <set>

namespace asynct::jinja {
namespace {

struct Scope {
  const Scope* parent = nullptr;
  std::set<NameId> known;      // read or set here
  std::set<NameId> undefined;  // set before they were read, unknown further out
  int branches = 0;            // ifs around the statement that is looked at

  bool knows(NameId name) const { return known.contains(name) || (parent != nullptr && parent->knows(name)); }
  void load(NameId name) { known.insert(name); }
  /// What a branch sets is looked up further out, as it may not be set here at all.
  void store(NameId name) {
    if (branches == 0 && !knows(name)) undefined.insert(name);
    known.insert(name);
  }
};

class Resolver {
 public:
  void resolve(ScopedBody& body, Scope& scope) {
    std::vector<Statement*> inner;  // bodies further in are looked at when all names of this one are known
    visit(body.statements, scope, inner);
    body.undefined.assign(scope.undefined.begin(), scope.undefined.end());
    for (Statement* statement : inner) resolve_inner(*statement, scope);
  }

 private:
  using Inner = std::vector<Statement*>;

  void resolve_inner(Statement& statement, const Scope& outer) {
    Scope scope{&outer};
    if (auto* loop = std::get_if<For>(&statement.node)) {
      declare(loop->target, scope);
      resolve(loop->body, scope);
      Scope otherwise{&outer};
      resolve(loop->otherwise, otherwise);
    } else if (auto* block = std::get_if<AssignBlock>(&statement.node)) {
      resolve(block->body, scope);
    } else if (auto* macro = std::get_if<MacroDefinition>(&statement.node)) {
      for (const MacroParameter& parameter : macro->parameters) scope.load(parameter.name);
      for (const MacroParameter& parameter : macro->parameters) visit(parameter.default_value, scope);
      resolve(macro->body, scope);
    } else if (auto* generation = std::get_if<Generation>(&statement.node)) {
      resolve(generation->body, scope);
    }
  }

  void declare(const Target& target, Scope& scope) {
    if (target.name >= 0) scope.load(target.name);
    for (const Target& element : target.elements) declare(element, scope);
  }

  void store(const Target& target, Scope& scope) {
    if (target.name >= 0) target.attribute.empty() ? scope.store(target.name) : scope.load(target.name);
    for (const Target& element : target.elements) store(element, scope);
  }

  void visit(Body& body, Scope& scope, Inner& inner) {
    for (auto& statement : body) visit(*statement, scope, inner);
  }

  void visit(Statement& statement, Scope& scope, Inner& inner) {
    if (auto* output = std::get_if<Output>(&statement.node)) {
      visit(output->value, scope);
    } else if (auto* branch = std::get_if<If>(&statement.node)) {
      visit_if(*branch, scope, inner);
    } else if (auto* assign = std::get_if<Assign>(&statement.node)) {
      visit(assign->value, scope);
      store(assign->target, scope);
    } else {
      if (auto* loop = std::get_if<For>(&statement.node)) visit(loop->iterable, scope);
      if (auto* block = std::get_if<AssignBlock>(&statement.node)) store(block->target, scope);
      if (auto* macro = std::get_if<MacroDefinition>(&statement.node)) scope.store(macro->name);
      inner.push_back(&statement);
    }
  }

  void visit_if(If& node, Scope& scope, Inner& inner) {
    ++scope.branches;
    for (auto& [condition, body] : node.branches) {
      visit(condition, scope);
      visit(body, scope, inner);
    }
    visit(node.otherwise, scope, inner);
    --scope.branches;
  }

  void visit(const ExprPtr& expr, Scope& scope) {
    if (expr != nullptr) std::visit([&](const auto& node) { visit_node(node, scope); }, expr->node);
  }
  void visit(const CallArguments& arguments, Scope& scope) {
    for (const ExprPtr& argument : arguments.positional) visit(argument, scope);
    for (const auto& [name, argument] : arguments.named) visit(argument, scope);
  }
  void visit_node(const Literal&, Scope&) {}
  void visit_node(const Name& node, Scope& scope) { scope.load(node.id); }
  void visit_node(const SequenceDisplay& node, Scope& scope) {
    for (const ExprPtr& item : node.items) visit(item, scope);
  }
  void visit_node(const DictDisplay& node, Scope& scope) {
    for (const auto& [key, value] : node.items) {
      visit(key, scope);
      visit(value, scope);
    }
  }
  void visit_node(const Unary& node, Scope& scope) { visit(node.operand, scope); }
  template <class Chain>
  requires requires(const Chain& chain) { chain.rest; }
  void visit_node(const Chain& node, Scope& scope) {
    visit(node.first, scope);
    for (const auto& [op, operand] : node.rest) visit(operand, scope);
  }
  void visit_node(const Concat& node, Scope& scope) {
    for (const ExprPtr& part : node.parts) visit(part, scope);
  }
  void visit_node(const Logic& node, Scope& scope) {
    for (const ExprPtr& operand : node.operands) visit(operand, scope);
  }
  void visit_node(const Conditional& node, Scope& scope) {
    for (const ExprPtr* part : {&node.test, &node.yes, &node.no}) visit(*part, scope);
  }
  void visit_node(const Attribute& node, Scope& scope) { visit(node.object, scope); }
  void visit_node(const Item& node, Scope& scope) {
    visit(node.object, scope);
    visit(node.key, scope);
  }
  void visit_node(const Slice& node, Scope& scope) {
    for (const ExprPtr* part : {&node.object, &node.start, &node.stop, &node.step}) visit(*part, scope);
  }
  void visit_node(const Call& node, Scope& scope) {
    visit(node.callee, scope);
    visit(node.arguments, scope);
  }
  template <class Applied>
  requires requires(const Applied& node) { node.input; }
  void visit_node(const Applied& node, Scope& scope) {
    visit(node.input, scope);
    visit(node.arguments, scope);
  }
};

}  // namespace

void resolve_scopes(Program& program) {
  Scope root;
  Resolver().resolve(program.root, root);
}

}  // namespace asynct::jinja
