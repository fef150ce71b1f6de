#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "asynct/serve/http/server.h"

namespace asynct::http {

/// Whether the value of an Authorization header is "Bearer KEY" with one of the keys. The time taken depends
/// on lengths only, not on where texts differ.
bool has_valid_key(std::string_view authorization, std::span<const std::string> keys);

/// Whether the value of a Host header names one of the allowed hosts (none: all are), whatever the port. No
/// value is fine: every browser sends one.
bool host_is_allowed(std::string_view host, std::span<const std::string> allowed);

/// The proposed id if it has 1 to 128 characters of [A-Za-z0-9._-], else a random one of 32 hexadecimal
/// digits.
std::string choose_request_id(std::string_view proposed);

/// The value of Access-Control-Allow-Origin for a request from `origin`; empty: none.
std::string allowed_origin(std::string_view origin, std::span<const std::string> allowed);

/// The headers that every answer to this request carries, formatted: its id, and CORS where that is on.
std::string common_headers(const HttpRequest& request, const ServerOptions& options);

struct EarlyAnswer {
  int status = 200;
  std::string body;  // JSON
  Headers headers;
};
/// What needs no handler and no body: OPTIONS with the CORS preflight among them, 401, 403, 404, 405.
/// The preflight comes before the key, as browsers send none with it.
std::optional<EarlyAnswer> early_answer(const HttpRequest& request, const Router::Match& match,
                                        const ServerOptions& options);

/// ASCII only, as names and tokens of HTTP are.
bool equal_ignoring_case(std::string_view a, std::string_view b);
std::string lower_case(std::string_view text);

}  // namespace asynct::http
