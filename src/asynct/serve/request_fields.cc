#include "asynct/serve/request_fields.h"

#include <cmath>

namespace asynct::serve {
namespace {

[[noreturn]] void refuse(const char* name, std::string message) {
  throw RequestError(cat(name, ": ", message), name);
}

// Short enough for a message.
std::string shown(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

Json Fields::parse(std::string_view body) {
  Json object;
  try {
    object = parse_json(body, "request body", 32);
  } catch (const Error& error) {
    throw RequestError(error.what(), "");
  }
  if (!object.is_object()) throw RequestError("request body: expected a JSON object", "");
  return object;
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> Fields::maybe_integer(const char* name, std::int64_t least,
                                                  std::int64_t most) const {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  // 5.0 is what some clients send for 5.
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>() &&
                      std::abs(value->get<double>()) < 1e15);
  if (!whole) refuse(name, cat(shown(*value), ", expected an integer"));
  const bool huge = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX;
  const std::int64_t number = huge ? INT64_MAX : value->get<std::int64_t>();
  if (number < least || number > most) refuse(name, cat(shown(*value), ", expected ", least, " to ", most));
  return number;
}

std::int64_t Fields::integer(const char* name, std::int64_t otherwise, std::int64_t least,
                             std::int64_t most) const {
  return maybe_integer(name, least, most).value_or(otherwise);
}

double Fields::number(const char* name, double otherwise, double least, double most) const {
  const Json* const value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(name, cat(shown(*value), ", expected a number"));
  const auto number = value->get<double>();
  if (!(number >= least && number <= most))
    refuse(name, cat(shown(*value), ", expected ", least, " to ", most));
  return number;
}

bool Fields::boolean(const char* name, bool otherwise) const {
  const Json* const value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, cat(shown(*value), ", expected true or false"));
  return value->get<bool>();
}

std::string Fields::text(const char* name, std::string_view otherwise, std::size_t most_bytes) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) refuse(name, cat(shown(*value), ", expected a string"));
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > most_bytes) refuse(name, cat(text.size(), " bytes, expected at most ", most_bytes));
  return text;
}

std::vector<std::string> Fields::texts(const char* name, std::size_t most, std::size_t most_bytes) const {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {text(name, {}, most_bytes)};
  if (!value->is_array()) refuse(name, cat(shown(*value), ", expected a string or a list of strings"));
  if (value->size() > most) refuse(name, cat(value->size(), " of them, expected at most ", most));
  std::vector<std::string> all;
  for (const Json& item : *value) {
    if (!item.is_string()) refuse(name, cat(shown(item), " in the list, expected strings"));
    all.push_back(item.get<std::string>());
    if (all.back().size() > most_bytes)
      refuse(name, cat(all.back().size(), " bytes in one, expected at most ", most_bytes));
  }
  return all;
}

std::vector<Token> token_ids(const Json& list, const char* name, std::size_t most, std::int64_t vocabulary) {
  if (list.size() > most) refuse(name, cat(list.size(), " tokens, expected at most ", most));
  std::vector<Token> ids;
  ids.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_number_integer()) refuse(name, cat(shown(item), " in the list, expected token ids"));
    const bool huge = item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX;
    const std::int64_t id = huge ? INT64_MAX : item.get<std::int64_t>();
    if (id < 0 || id >= vocabulary)
      refuse(name, cat("token ", id, " is not in the vocabulary of ", vocabulary));
    ids.push_back(static_cast<Token>(id));
  }
  return ids;
}

std::vector<Token> Fields::tokens(const char* name, std::size_t most, std::int64_t vocabulary) const {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (!value->is_array()) refuse(name, cat(shown(*value), ", expected a list of token ids"));
  return token_ids(*value, name, most, vocabulary);
}

}  // namespace asynct::serve
