#include "asynct/serve/load/url.h"

#include <algorithm>
#include <charconv>

#include "asynct/base/error.h"

namespace asynct::load {

Url parse_url(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    fail("URL: expected http://HOST[:PORT][/BASE], found \"", text, "\"", why);
  };
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) wrong("; https is not supported");
  if (!text.starts_with(kScheme)) wrong("");
  // What stands in a request line and a header must not end them.
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7F; }))
    wrong(": not only printable ASCII");
  const std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  if (rest.find_first_of("?#@") != std::string_view::npos)
    wrong(": neither user, query nor fragment is taken");
  Url url;
  std::string_view authority = rest.substr(0, slash);
  url.authority = authority;
  std::string_view base = rest.substr(slash);
  while (base.ends_with('/')) base.remove_suffix(1);
  if (base.ends_with("/v1")) base.remove_suffix(3);
  url.base = base;
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  if (bracket == std::string_view::npos) wrong(": no closing bracket");
  const std::size_t colon = std::min(authority.find(':', bracket), authority.size());
  url.host = bracket > 0 ? authority.substr(1, bracket - 1) : authority.substr(0, colon);
  if (url.host.empty() || (bracket > 0 && colon < authority.size() && colon != bracket + 1)) wrong("");
  if (bracket > 0 && colon == authority.size() && bracket + 1 != authority.size()) wrong("");
  if (colon < authority.size()) {
    const std::string_view port = authority.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (error != std::errc{} || end != port.data() + port.size() || url.port < 1 || url.port > 65535)
      wrong(": the port must be 1 to 65535");
  }
  return url;
}

}  // namespace asynct::load
