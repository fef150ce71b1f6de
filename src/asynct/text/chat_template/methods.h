#pragma once

#include <string_view>

#include "asynct/text/chat_template/arguments.h"
#include "asynct/text/chat_template/runtime.h"

namespace asynct::jinja {

enum class MethodKind : std::uint8_t {
  kNone,  // Python has no attribute of that name
  kSupported,
  kUnsupported,  // Python has it, we do not
  kForbidden,    // it would change a list or dict, which the sandbox does not allow
};

/// What `name` is to a string, list, tuple, dict or number.
MethodKind find_method(const Value& value, std::string_view name);

/// Whether a call of `.name()` can only mean a method that is not supported.
bool is_refused_method(std::string_view name);

Value call_method(Runtime& runtime, const Method& method, Arguments arguments);

}  // namespace asynct::jinja
