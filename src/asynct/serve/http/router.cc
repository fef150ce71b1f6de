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

const Router::Methods* Router::methods_of(std::string_view path) const {
  auto found = paths_.find(path);
  for (std::size_t end = path.size(); found == paths_.end() && end > 0;) {
    end = path.substr(0, end).rfind('/');
    if (end == std::string_view::npos) return nullptr;
    found = paths_.find(std::string(path.substr(0, end)) + "/*");
  }
  return found == paths_.end() ? nullptr : &found->second;
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  Match match;
  const Methods* const methods = methods_of(path);
  if (methods == nullptr) return match;
  const Methods& handlers = *methods;
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
