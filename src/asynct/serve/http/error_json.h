#pragma once

#include <string>
#include <string_view>

#include "asynct/serve/http/server.h"

namespace asynct::http {

/// An error as OpenAI's API reports it: {"error": {"message", "type", "param", "code"}}.
struct ApiError {
  int status = 500;
  std::string message;
  std::string type;   // empty: by status, error_type()
  std::string param;  // the request's field at fault; empty: null
  std::string code;   // "model_not_found", say; empty: null
};

/// "invalid_request_error", "authentication_error", "rate_limit_error" or "server_error".
std::string_view error_type(int status);

/// One line of JSON; valid UTF-8 whatever the message holds.
std::string error_json(const ApiError& error);

/// The whole response. False as for Responder::send.
bool send_error(Responder& responder, const ApiError& error, const Headers& headers = {});

}  // namespace asynct::http
