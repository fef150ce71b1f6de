#include "asynct/model/config_fields.h"

#include <cmath>

#include "asynct/base/error.h"

namespace asynct {
namespace {

/// The value as a message shows it: JSON text, cut when long.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = dump_json(value);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

bool is_integer_in(const Json& value, std::int64_t low, std::int64_t high) {
  // is_number_integer() is also true for unsigned values beyond int64, which get<int64_t>() would wrap.
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return false;
  const auto number = value.get<std::int64_t>();
  return low <= number && number <= high;
}

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string_view what) : object_(object), what_(what) {
  if (!object.is_object()) fail(what, ": found ", shown(object), ", expected a JSON object");
}

bool ConfigFields::has(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && !it->is_null();
}

const Json* ConfigFields::read(std::string_view key) {
  read_.emplace(key);
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

const Json& ConfigFields::required(std::string_view key, std::string_view expected) {
  const Json* const value = read(key);
  if (value == nullptr) fail(what_, ": ", key, " is missing, expected ", expected);
  return *value;
}

void ConfigFields::reject(std::string_view key, std::string_view expected) const {
  const auto it = object_.find(std::string(key));
  const std::string found = it == object_.end() ? "nothing" : shown(*it);
  fail(what_, ": ", key, " is ", found, ", expected ", expected);
}

std::int32_t ConfigFields::integer(std::string_view key, std::int32_t low, std::int32_t high,
                                   std::optional<std::int32_t> fallback) {
  if (fallback && read(key) == nullptr) return *fallback;
  const std::string expected = cat("an integer from ", low, " to ", high);
  const Json& value = required(key, expected);
  if (!is_integer_in(value, low, high)) reject(key, expected);
  return value.get<std::int32_t>();
}

double ConfigFields::number(std::string_view key, double low, double high, std::optional<double> fallback) {
  if (fallback && read(key) == nullptr) return *fallback;
  const std::string expected = cat("a number from ", low, " to ", high);
  const Json& value = required(key, expected);
  if (!value.is_number()) reject(key, expected);
  const auto number = value.get<double>();
  if (!(number >= low && number <= high)) reject(key, expected);
  return number;
}

bool ConfigFields::boolean(std::string_view key, std::optional<bool> fallback) {
  if (fallback && read(key) == nullptr) return *fallback;
  const Json& value = required(key, "true or false");
  if (!value.is_boolean()) reject(key, "true or false");
  return value.get<bool>();
}

std::string ConfigFields::choice(std::string_view key, const std::vector<std::string_view>& allowed,
                                 std::optional<std::string_view> fallback) {
  if (fallback && read(key) == nullptr) return std::string(*fallback);
  std::string expected = allowed.size() > 1 ? "one of" : "";
  for (const auto& each : allowed) expected += cat(expected.empty() ? "" : " ", "\"", each, "\"");
  const Json& value = required(key, expected);
  if (!value.is_string()) reject(key, expected);
  for (const auto& each : allowed)
    if (value.get_ref<const std::string&>() == each) return std::string(each);
  reject(key, expected);
}

std::pair<double, double> ConfigFields::interval(std::string_view key, std::pair<double, double> fallback) {
  constexpr std::string_view kExpected = "[low, high], two finite numbers with low < high";
  const Json* const value = read(key);
  if (value == nullptr) return fallback;
  if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number() || !(*value)[1].is_number())
    reject(key, kExpected);
  const std::pair result((*value)[0].get<double>(), (*value)[1].get<double>());
  if (!std::isfinite(result.first) || !std::isfinite(result.second) || !(result.first < result.second))
    reject(key, kExpected);
  return result;
}

std::vector<std::int32_t> ConfigFields::token_ids(std::string_view key, std::int32_t vocab_size) {
  std::vector<std::int32_t> ids;
  const Json* const value = read(key);
  if (value == nullptr) return ids;
  const auto add = [&](const Json& id) {
    if (!is_integer_in(id, -1, vocab_size - 1))
      reject(key, cat("token ids below vocab_size = ", vocab_size, " (or -1 for none)"));
    if (id.get<std::int32_t>() >= 0) ids.push_back(id.get<std::int32_t>());
  };
  if (value->is_array())
    for (const Json& id : *value) add(id);
  else
    add(*value);
  return ids;
}

const Json* ConfigFields::object(std::string_view key) {
  const Json* const value = read(key);
  if (value != nullptr && !value->is_object()) reject(key, "an object");
  return value;
}

void ConfigFields::require_only(std::string_view key, const Json& value) {
  const Json* const found = read(key);
  if (found != nullptr && *found != value) reject(key, cat(shown(value), "; other values are not supported"));
}

void ConfigFields::require_all(std::string_view key, const Json& value) {
  const Json* const found = read(key);
  if (found == nullptr) return;
  const std::string expected = cat("a list of ", shown(value), "; others are not supported");
  if (!found->is_array()) reject(key, expected);
  for (const Json& each : *found)
    if (each != value) reject(key, expected);
}

void ConfigFields::refuse_the_rest() const {
  for (const auto& [key, value] : object_.items())
    if (read_.count(key) == 0)
      fail(what_, ": unknown key ", key, " = ", shown(value),
           "; it may change the arithmetic, so the model is not run (delete the key if it does not)");
}

}  // namespace asynct
