#include "asynct/serve/answer_parts.h"

#include "asynct/serve/json_writer.h"

namespace asynct::serve {

void append_ending(std::string& out, const ChoiceDelta& delta) {
  out += ",\"finish_reason\":";
  if (delta.ending) {
    append_json(out, delta.ending->reason);
  } else {
    out += "null";
  }
  out += ",\"stop_reason\":";
  if (delta.ending && delta.ending->stop_string) {
    append_json(out, std::string_view(*delta.ending->stop_string));
  } else if (delta.ending && delta.ending->stop_token) {
    append_json(out, std::int64_t{*delta.ending->stop_token});
  } else {
    out += "null";
  }
}

void append_usage(std::string& out, const Usage& usage) {
  out += ",\"usage\":{\"prompt_tokens\":";
  append_json(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_json(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_json(out, usage.prompt_tokens + usage.completion_tokens);
  out += '}';
}

}  // namespace asynct::serve
