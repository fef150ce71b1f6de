#pragma once

#include <string>
#include <string_view>

namespace asynct::load {

/// "http://HOST[:PORT][/BASE]"; HOST is a name, an IPv4 address or an IPv6 one in brackets. A BASE that ends
/// in /v1, as OpenAI's clients take it, is cut by that.
struct Url {
  std::string host;  // without brackets
  int port = 80;
  std::string base;       // "" or "/something", no slash at the end
  std::string authority;  // as given, for Host
};

/// Errors: https (a proxy must end it), anything else that is no such address.
Url parse_url(std::string_view text);

}  // namespace asynct::load
