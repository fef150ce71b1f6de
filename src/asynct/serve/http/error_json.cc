#include "asynct/serve/http/error_json.h"

#include "asynct/base/json.h"

namespace asynct::http {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::string_view error_type(int status) {
  if (status == 401 || status == 403) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string error_json(const ApiError& error) {
  const std::string type = error.type.empty() ? std::string(error_type(error.status)) : error.type;
  return dump_json(Json{{"error",
                         {{"message", error.message},
                          {"type", type},
                          {"param", text_or_null(error.param)},
                          {"code", text_or_null(error.code)}}}});
}

bool send_error(Responder& responder, const ApiError& error, const Headers& headers) {
  return responder.send(error.status, "application/json", error_json(error), headers);
}

}  // namespace asynct::http
