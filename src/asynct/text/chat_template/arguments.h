#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "asynct/text/chat_template/value.h"

namespace asynct::jinja {

/// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

/// Arguments matched with a function's parameters.
class Parameters {
 public:
  enum class Named : bool { kRefused, kAllowed };

  /// `names` in order; the first `required` must be given. Errors, which begin with `callee`: too many or too
  /// few arguments, names that are unknown or given twice.
  Parameters(std::string_view callee, Arguments arguments, std::initializer_list<std::string_view> names,
             std::size_t required = 0, Named named = Named::kAllowed);

  /// Null when not given.
  const Value* operator[](std::size_t i) const { return given_[i] ? &values_[i] : nullptr; }
  /// Null when not given, or None.
  const Value* unless_none(std::size_t i) const {
    return given_[i] && !values_[i].is_none() ? &values_[i] : nullptr;
  }

  // With a default; Errors when the value has another type.
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  const std::string& text(std::size_t i) const;
  bool truth_of(std::size_t i) const;

 private:
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

/// The value as an integer. Errors name `what`; booleans count, floats do not.
std::int64_t expect_integer(const Value& value, std::string_view what);

/// The value as a string.
const std::string& expect_text(const Value& value, std::string_view what);

}  // namespace asynct::jinja
