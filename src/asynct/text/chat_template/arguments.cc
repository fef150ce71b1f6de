#include "asynct/text/chat_template/arguments.h"

#include <algorithm>

#include "asynct/base/error.h"

namespace asynct::jinja {

Parameters::Parameters(std::string_view callee, Arguments arguments,
                       std::initializer_list<std::string_view> names, std::size_t required, Named named)
    : callee_(callee), names_(names), values_(names.size()), given_(names.size(), false) {
  if (arguments.positional.size() > names_.size())
    fail(callee, ": ", arguments.positional.size(), " arguments, at most ", names_.size(), " expected");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
    given_[i] = true;
  }
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const auto i = static_cast<std::size_t>(found - names_.begin());
    if (named == Named::kRefused || found == names_.end()) fail(callee, ": no argument is named ", name);
    if (given_[i]) fail(callee, ": the argument ", name, " is given twice");
    values_[i] = std::move(value);
    given_[i] = true;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!given_[i]) fail(callee, ": the argument ", names_[i], " is missing");
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t otherwise) const {
  return given_[i] ? expect_integer(values_[i], callee_) : otherwise;
}

const std::string& Parameters::text(std::size_t i) const { return expect_text(values_[i], callee_); }

bool Parameters::truth_of(std::size_t i) const { return given_[i] && truth(values_[i]); }

std::int64_t expect_integer(const Value& value, std::string_view what) {
  if (const auto* hole = value.as<Undefined>()) fail(*hole->why);
  const auto integer = value.integer();
  if (!integer.has_value()) fail(what, ": expected an integer, found ", type_name(value));
  return *integer;
}

const std::string& expect_text(const Value& value, std::string_view what) {
  const String* text = value.string();
  if (text == nullptr) fail(what, ": expected a string, found ", type_name(value));
  return text->text;
}

}  // namespace asynct::jinja
