#pragma once

#include <memory>
#include <string>

#include "asynct/serve/context.h"
#include "asynct/serve/http/server.h"
#include "asynct/serve/request_fields.h"

namespace asynct::serve {

/// POST /v1/chat/completions. RequestError for what is wrong with the request, also what the template raises.
void handle_chat(const Context& context, const http::HttpRequest& request,
                 std::shared_ptr<http::Responder> responder);

/// The prompt that the model's template makes of `messages` and its options.
std::string render_chat(const Context& context, const Fields& fields);

}  // namespace asynct::serve
