#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "asynct/base/json.h"
#include "asynct/serve/load/options.h"

namespace asynct::load {

struct Prompt {
  Json content;                    // token ids, or text, or chat messages
  std::int64_t tokens = 0;         // 0: unknown, it is text
  std::int64_t output_tokens = 0;  // asked for
};

/// An endless sequence of prompts that depends on the options (seed among them) only.
class PromptSource {
 public:
  virtual ~PromptSource() = default;
  virtual Prompt next() = 0;
};

/// Random token ids in [0, vocabulary), each prompt shared_prefix + its own. With vocabulary 0, or for chat,
/// words instead of ids, one per token asked for: the count is then only near.
std::unique_ptr<PromptSource> random_prompts(const LoadOptions& options, std::int64_t vocabulary);

/// Lines of JSON, over and over: a string, an array of token ids, or an object with "prompt" (either) or
/// "messages", and maybe "max_tokens" (else drawn from output_tokens). Errors name `what` and the line.
std::unique_ptr<PromptSource> given_prompts(const LoadOptions& options, std::string_view lines,
                                            std::string_view what);

/// Lines with a prompt, for the number of requests.
std::int64_t count_prompts(std::string_view lines);

/// The JSON text of a request.
std::string request_body(const LoadOptions& options, const std::string& model, const Prompt& prompt);

}  // namespace asynct::load
