#pragma once

#include <string_view>

#include "asynct/text/chat_template/arguments.h"
#include "asynct/text/chat_template/runtime.h"

namespace asynct::jinja {

/// value|name(arguments). Errors begin with the filter's name.
struct Filter {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Value& value, Arguments arguments);
};

/// The filter of that name, null when there is none.
const Filter* find_filter(std::string_view name);

/// value is name(arguments).
struct Test {
  std::string_view name;
  bool (*apply)(Runtime& runtime, const Value& value, Arguments arguments);
};

const Test* find_test(std::string_view name);

}  // namespace asynct::jinja
