#pragma once

#include <memory>

#include "asynct/serve/context.h"
#include "asynct/serve/http/server.h"

namespace asynct::serve {

/// POST /v1/score {"context", "continuations"}: log-probabilities of continuations of one context, which runs
/// through the model once. Texts are cut into tokens as lm-eval does, context and continuation together; or
/// all are lists of token ids. Answers {"data": [{"index", "logprob", "greedy", "tokens"}], "usage"}.
/// RequestError for what is wrong with the request.
void handle_score(const Context& context, const http::HttpRequest& request,
                  std::shared_ptr<http::Responder> responder);

}  // namespace asynct::serve
