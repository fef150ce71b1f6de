#include <algorithm>
#include <cassert>

#include "asynct/serve/http/server.h"

namespace asynct::http {

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [name](const auto& header) { return header.first == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

void Router::add(std::string_view method, std::string_view path, Handler handler) {
  assert(path.starts_with('/') && handler != nullptr);
  paths_[std::string(path)].insert_or_assign(std::string(method), std::move(handler));
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  const auto methods = paths_.find(path);
  if (methods == paths_.end()) return match;
  const auto& handlers = methods->second;
  auto found = handlers.find(method);
  if (found == handlers.end() && method == "HEAD") found = handlers.find("GET");
  if (found != handlers.end()) match.handler = &found->second;
  for (const auto& [name, handler] : handlers) match.allowed += name + ", ";
  if (handlers.contains("GET") && !handlers.contains("HEAD")) match.allowed += "HEAD, ";
  if (!handlers.contains("OPTIONS")) match.allowed += "OPTIONS, ";
  match.allowed.resize(match.allowed.size() - 2);
  return match;
}

}  // namespace asynct::http
