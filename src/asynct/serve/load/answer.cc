#include "asynct/serve/load/answer.h"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/base/json.h"

namespace asynct::load {
namespace {

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool has_items(const Json& object, const char* key) {
  const Json* const value = find(object, key);
  if (value == nullptr) return false;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return value->is_array() && !value->empty();
}

bool has_content(const Json& choice) {
  if (!choice.is_object()) fail("response: a choice is not an object");
  if (has_items(choice, "text") || has_items(choice, "token_ids")) return true;
  for (const char* const part : {"delta", "message"}) {
    const Json* const message = find(choice, part);
    if (message == nullptr) continue;
    if (!message->is_object()) fail("response: ", part, " is not an object");
    for (const char* const key : {"content", "reasoning_content", "reasoning", "tool_calls"})
      if (has_items(*message, key)) return true;
  }
  return false;
}

std::optional<std::int64_t> count(const Json& usage, const char* key) {
  const Json* const value = find(usage, key);
  if (value == nullptr) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (!value->is_number_integer() || *value < 0 || *value > kMost)
    fail("response: usage.", key, " is not a number of tokens");
  return value->get<std::int64_t>();
}

std::string message_of(const Json& error) {
  if (error.is_string()) return error.get<std::string>();
  if (error.is_object())
    if (const Json* const message = find(error, "message"); message != nullptr && message->is_string())
      return message->get<std::string>();
  return dump_json(error);
}

}  // namespace

Answer parse_answer(std::string_view data) {
  Answer answer;
  if (data == "[DONE]") {
    answer.done = true;
    return answer;
  }
  const Json json = parse_json(data, "response");
  if (!json.is_object()) fail("response: not an object");
  if (const Json* const error = find(json, "error")) {
    answer.error = message_of(*error);
    return answer;
  }
  const Json* const choices = find(json, "choices");
  if (choices == nullptr || !choices->is_array()) fail("response: choices is not an array");
  for (const Json& choice : *choices) answer.content = has_content(choice) || answer.content;
  if (const Json* const usage = find(json, "usage")) {
    if (!usage->is_object()) fail("response: usage is not an object");
    answer.prompt_tokens = count(*usage, "prompt_tokens");
    answer.output_tokens = count(*usage, "completion_tokens");
  }
  return answer;
}

std::string error_message(std::string_view body) {
  constexpr std::size_t kLongest = 200;
  std::string message(body);
  try {
    const Json json = parse_json(body, "response");
    if (json.is_object()) {
      const Json* const error = find(json, "error");
      message = message_of(error == nullptr ? json : *error);
    }
  } catch (const Error&) {
    // Not JSON: a proxy's page, say.
  }
  if (message.size() > kLongest) message.resize(kLongest);
  return message;
}

}  // namespace asynct::load
