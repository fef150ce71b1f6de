#include "asynct/serve/http/request_checks.h"

#include <algorithm>
#include <random>

#include "asynct/base/strings.h"
#include "asynct/serve/http/error_json.h"
#include "asynct/serve/http/response_head.h"

namespace asynct::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_id_character(char c) {
  return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || c == '.' || c == '_' || c == '-';
}

// No early exit, and no branch on the content of the key.
bool constant_time_equal(std::string_view given, const std::string& key) {
  unsigned char difference = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference = static_cast<unsigned char>(difference | (given[i] ^ expected));
  }
  return difference == 0;
}

std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const bool in_brackets = host.find(']') != host.npos && colon < host.find(']');
  return colon == host.npos || in_brackets ? host : host.substr(0, colon);
}

EarlyAnswer error_answer(const ApiError& error, Headers headers = {}) {
  return {.status = error.status, .body = error_json(error), .headers = std::move(headers)};
}

EarlyAnswer preflight_answer(const HttpRequest& request, const Router::Match& match) {
  const std::string_view asked = request.header("access-control-request-headers");
  return {.status = 204,
          .headers = {{"Access-Control-Allow-Methods", match.allowed},
                      {"Access-Control-Allow-Headers",
                       asked.empty() ? "Authorization, Content-Type, X-Request-Id" : std::string(asked)},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

bool has_valid_key(std::string_view authorization, std::span<const std::string> keys) {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() <= kScheme.size() ||
      !equal_ignoring_case(authorization.substr(0, kScheme.size()), kScheme))
    return false;
  authorization.remove_prefix(
      std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
  bool valid = false;
  for (const std::string& key : keys) valid = constant_time_equal(authorization, key) || valid;
  return valid;
}

bool host_is_allowed(std::string_view host, std::span<const std::string> allowed) {
  if (allowed.empty() || host.empty()) return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one == "*" || equal_ignoring_case(without_port(one), without_port(host));
  });
}

std::string choose_request_id(std::string_view proposed) {
  constexpr std::size_t kLongest = 128;
  if (!proposed.empty() && proposed.size() <= kLongest &&
      std::all_of(proposed.begin(), proposed.end(), is_id_character))
    return std::string(proposed);
  // Ids tell requests apart and protect nothing, so a generator that could be guessed will do.
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  std::string id;
  for (int word = 0; word < 2; ++word) {
    const std::uint64_t bits = random();
    for (int shift = 60; shift >= 0; shift -= 4) id += "0123456789abcdef"[(bits >> shift) & 15];
  }
  return id;
}

std::string allowed_origin(std::string_view origin, std::span<const std::string> allowed) {
  if (origin.empty()) return {};
  for (const std::string& one : allowed)
    if (one == "*" || one == origin) return one;
  return {};
}

std::string common_headers(const HttpRequest& request, const ServerOptions& options) {
  std::string text;
  append_header(text, "X-Request-Id", request.id);
  if (options.allowed_origins.empty()) return text;
  const std::string origin = allowed_origin(request.header("origin"), options.allowed_origins);
  if (!origin.empty()) {
    append_header(text, "Access-Control-Allow-Origin", origin);
    append_header(text, "Access-Control-Expose-Headers", "X-Request-Id");
  }
  append_header(text, "Vary", "Origin");  // also without: caches must not mix the two
  return text;
}

std::optional<EarlyAnswer> early_answer(const HttpRequest& request, const Router::Match& match,
                                        const ServerOptions& options) {
  const std::string_view host = request.header("host");
  if (!host_is_allowed(host, options.allowed_hosts))
    return error_answer({.status = 403,
                         .message = cat("This server is not called \"", host,
                                        "\"; if it is, let it know by --allowed-host. (Pages of other sites "
                                        "reach local servers by names of their own.)"),
                         .type = "invalid_request_error",
                         .code = "host_not_allowed"});
  const bool preflight = request.method == "OPTIONS" &&
                         !request.header("access-control-request-method").empty() &&
                         !allowed_origin(request.header("origin"), options.allowed_origins).empty();
  if (preflight && !match.allowed.empty()) return preflight_answer(request, match);
  const auto& open = options.public_paths;
  const bool needs_key =
      !options.api_keys.empty() && std::find(open.begin(), open.end(), request.path) == open.end();
  if (needs_key && !has_valid_key(request.header("authorization"), options.api_keys))
    return error_answer({.status = 401,
                         .message = "No valid API key was given; send one as \"Authorization: Bearer KEY\".",
                         .code = "invalid_api_key"},
                        {{"WWW-Authenticate", "Bearer"}});
  if (match.handler != nullptr) return std::nullopt;
  if (match.allowed.empty())
    return error_answer({.status = 404, .message = cat("There is nothing at ", request.path, ".")});
  if (request.method == "OPTIONS") return EarlyAnswer{.status = 204, .headers = {{"Allow", match.allowed}}};
  return error_answer(
      {.status = 405, .message = cat(request.path, " takes ", match.allowed, ", not ", request.method, ".")},
      {{"Allow", match.allowed}});
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

}  // namespace asynct::http
