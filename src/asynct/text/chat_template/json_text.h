#pragma once

#include <optional>
#include <string>

#include "asynct/text/chat_template/runtime.h"

namespace asynct::jinja {

/// What json.dumps(value, ...) takes.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level of it; nothing: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// json.dumps(value). Errors: values and keys that JSON has no form for, keys without an order when sorted.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace asynct::jinja
