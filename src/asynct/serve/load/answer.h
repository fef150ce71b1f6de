#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace asynct::load {

/// What a measurement needs of one event of a stream, or of a whole response, of /v1/completions and
/// /v1/chat/completions alike.
struct Answer {
  bool done = false;                                         // the closing event "[DONE]"
  bool content = false;                                      // text (reasoning included) or token ids
  std::optional<std::int64_t> prompt_tokens, output_tokens;  // usage
  std::string error;                                         // message of an error object
};

/// Error: `data` is no JSON object of that shape.
Answer parse_answer(std::string_view data);

/// The "message" of an error response, whatever its shape; else the beginning of the text.
std::string error_message(std::string_view body);

}  // namespace asynct::load
