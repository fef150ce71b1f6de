#pragma once

#include "asynct/text/chat_template/ast.h"
#include "asynct/text/chat_template/runtime.h"

// Python's operators on values. Errors: types that they are not defined for, undefined values, division by
// zero, integers beyond 64 bits.
namespace asynct::jinja {

Value arithmetic(Runtime& runtime, BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);
bool compare(Runtime& runtime, CompareOp op, const Value& a, const Value& b);

/// `element in container`.
bool contains(Runtime& runtime, const Value& container, const Value& element);

}  // namespace asynct::jinja
