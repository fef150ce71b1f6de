#pragma once

#include <string>

#include "asynct/serve/context.h"
#include "asynct/serve/http/server.h"

// Text to tokens and back, as vLLM's server offers it and lm-eval's remote tokenizer reads it. Each returns
// the JSON of its answer.
namespace asynct::serve {

/// POST /tokenize {"prompt", "add_special_tokens"} or {"messages"} -> {"tokens", "count", "max_model_len"}.
std::string tokenize(const Context& context, const http::HttpRequest& request);
/// POST /detokenize {"tokens"} -> {"prompt"}.
std::string detokenize(const Context& context, const http::HttpRequest& request);
/// GET /tokenizer_info -> special tokens, chat template.
std::string tokenizer_info(const Context& context, const std::string& chat_template_source);
/// POST /apply-template {"messages"} -> {"prompt"}.
std::string apply_template(const Context& context, const http::HttpRequest& request);

}  // namespace asynct::serve
