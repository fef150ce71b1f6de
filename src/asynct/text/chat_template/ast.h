#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/chat_template/value.h"

// A parsed template. Names are numbers into Program::names.
namespace asynct::jinja {

struct Filter;  // filters.h
struct Test;    // tests.h
struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;
using NameId = int;
constexpr NameId kLoopName = 0;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Literal {
  Value value;
};
struct Name {
  NameId id;
};
struct SequenceDisplay {
  bool is_tuple;
  std::vector<ExprPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};
enum class UnaryOp : std::uint8_t { kNegate, kPlus, kNot };
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
enum class BinaryOp : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
/// first op x op y ..., from the left. Flat, so that long sums are not deep trees.
struct Arithmetic {
  ExprPtr first;
  std::vector<std::pair<BinaryOp, ExprPtr>> rest;
};
struct Concat {
  std::vector<ExprPtr> parts;
};
struct Logic {
  bool is_or;
  std::vector<ExprPtr> operands;
};
enum class CompareOp : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
/// A chain: a < b < c.
struct Comparison {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr test, yes, no;  // no: may be null
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Item {
  ExprPtr object, key;
};
struct Slice {
  ExprPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExprPtr input;
  const Filter* filter;
  CallArguments arguments;
};
struct TestCall {
  ExprPtr input;
  const Test* test;
  CallArguments arguments;
};

struct Expr {
  int line;
  int depth;  // of the tree below
  std::variant<Literal, Name, SequenceDisplay, DictDisplay, Unary, Arithmetic, Concat, Logic, Comparison,
               Conditional, Attribute, Item, Slice, Call, FilterCall, TestCall>
      node;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

/// A body with variables of its own. `undefined`: names that are not looked up further out before this body
/// sets them (see scopes.h).
struct ScopedBody {
  Body statements;
  std::vector<NameId> undefined;
};

/// What is assigned to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int line = 0;
  NameId name = -1;
  std::string attribute;         // of the namespace `name`, if not empty
  std::vector<Target> elements;  // when name < 0
};

struct Text {
  std::string text;
};
struct Output {
  ExprPtr value;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr iterable, condition;  // condition: may be null
  ScopedBody body, otherwise;
};
struct Assign {
  Target target;
  ExprPtr value;
};
struct AssignBlock {
  Target target;
  ScopedBody body;
};
struct MacroParameter {
  NameId name;
  ExprPtr default_value;  // may be null
};
struct MacroDefinition {
  NameId name;
  std::vector<MacroParameter> parameters;
  ScopedBody body;
};
struct Generation {
  ScopedBody body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Text, Output, If, For, Assign, AssignBlock, MacroDefinition, Generation, Break, Continue> node;
};

struct Program {
  std::string name;  // of the template, for messages
  ChatTemplateOptions options;
  std::vector<std::string> names;
  ScopedBody root;
};

}  // namespace asynct::jinja
