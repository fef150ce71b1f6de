#pragma once

#include <string_view>

namespace asynct::serve {

/// openapi.json with the program's version in it: OpenAPI 3.1, all routes.
std::string_view openapi_json();

}  // namespace asynct::serve
