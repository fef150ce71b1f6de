#pragma once

#include <string_view>

#include "asynct/text/chat_template/ast.h"

namespace asynct::jinja {

/// Parses a template. Errors, "NAME:LINE: ...": syntax, statements, filters, tests, functions and methods
/// that are not supported, limits on size and depth.
Program parse_program(std::string_view source, std::string_view name, ChatTemplateOptions options);

}  // namespace asynct::jinja
