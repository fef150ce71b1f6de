#include "asynct/eval/row.h"

#include <charconv>

#include "asynct/base/error.h"
#include "asynct/base/json.h"

namespace asynct {

Row::Row(const Json& value, std::string_view where) : value_(value), where_(where) {
  if (!value.is_object()) fail("expected an object, found ", value.type_name());
}

bool Row::has(std::string_view field) const { return value_.contains(std::string(field)); }

const Json& Row::at(std::string_view field) const {
  const auto found = value_.find(std::string(field));
  if (found == value_.end()) fail("field \"", field, "\" is missing");
  return *found;
}

void Row::expected(std::string_view field, std::string_view kind) const {
  fail("field \"", field, "\": expected ", kind, ", found ", dump_json(at(field)).substr(0, 60));
}

void Row::fail_with(const std::string& message) const { asynct::fail(where_, ": ", message); }

std::string Row::text(std::string_view field) const {
  const Json& value = at(field);
  if (!value.is_string()) expected(field, "a string");
  return value.get<std::string>();
}

std::vector<std::string> Row::texts(std::string_view field) const {
  const Json& value = at(field);
  if (!value.is_array() || value.empty()) expected(field, "a list of strings");
  std::vector<std::string> out;
  for (const Json& item : value) {
    if (!item.is_string()) expected(field, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::int64_t Row::integer(std::string_view field) const {
  const Json& value = at(field);
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_string()) expected(field, "a whole number");
  const auto& text = value.get_ref<const std::string&>();
  std::int64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size()) expected(field, "a whole number");
  return number;
}

Row Row::row(std::string_view field) const { return {at(field), cat(where_, ": field \"", field, "\"")}; }

}  // namespace asynct
