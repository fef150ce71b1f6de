#pragma once

#include <memory>

#include "asynct/serve/context.h"
#include "asynct/serve/http/server.h"

namespace asynct::serve {

/// POST /v1/completions. RequestError for what is wrong with the request.
void handle_completions(const Context& context, const http::HttpRequest& request,
                        std::shared_ptr<http::Responder> responder);

/// RequestError unless `model` of a request is one of ours, or absent.
void check_model(const Context& context, const class Fields& fields);

/// Of the text in `field`. RequestError as soon as it is clear that they do not fit the context.
std::vector<Token> encode_prompt(const Context& context, std::string_view text, bool add_special,
                                 const char* field);

/// The room left for generation. RequestError when there is none, or less than what is asked for.
std::int64_t tokens_to_generate(const Context& context, std::int64_t prompt_tokens,
                                const std::optional<std::int64_t>& asked, std::int64_t otherwise);

}  // namespace asynct::serve
