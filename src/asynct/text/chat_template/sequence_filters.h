#pragma once

#include "asynct/text/chat_template/arguments.h"
#include "asynct/text/chat_template/runtime.h"

// Filters over the elements of a value; Filter::apply in filters.h says what they take. items, map, select
// and their like, unique and batch give generators.
namespace asynct::jinja {

Value batch(Runtime& runtime, const Value& value, Arguments arguments);
Value count_elements(Runtime& runtime, const Value& value, Arguments arguments);
Value dictsort(Runtime& runtime, const Value& value, Arguments arguments);
Value first(Runtime& runtime, const Value& value, Arguments arguments);
Value items(Runtime& runtime, const Value& value, Arguments arguments);
Value join(Runtime& runtime, const Value& value, Arguments arguments);
Value last(Runtime& runtime, const Value& value, Arguments arguments);
Value list(Runtime& runtime, const Value& value, Arguments arguments);
Value map(Runtime& runtime, const Value& value, Arguments arguments);
Value maximum(Runtime& runtime, const Value& value, Arguments arguments);
Value minimum(Runtime& runtime, const Value& value, Arguments arguments);
Value reject(Runtime& runtime, const Value& value, Arguments arguments);
Value rejectattr(Runtime& runtime, const Value& value, Arguments arguments);
Value reverse(Runtime& runtime, const Value& value, Arguments arguments);
Value select(Runtime& runtime, const Value& value, Arguments arguments);
Value selectattr(Runtime& runtime, const Value& value, Arguments arguments);
Value sort(Runtime& runtime, const Value& value, Arguments arguments);
Value sum(Runtime& runtime, const Value& value, Arguments arguments);
Value unique(Runtime& runtime, const Value& value, Arguments arguments);

}  // namespace asynct::jinja
