#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "asynct/serve/http/server.h"

namespace asynct::http {

struct ResponseHead {
  int status = 200;
  std::string_view content_type;
  std::optional<std::size_t> content_length;  // none: see chunked; neither: the body ends with the connection
  bool chunked = false;
  bool http10 = false;  // whose default is close
  bool keep_alive = true;
};

/// "404 Not Found" without the number.
std::string_view reason_phrase(int status);

/// "Name: value\r\n" with control characters as spaces; nothing if the name is not a token.
void append_header(std::string& out, std::string_view name, std::string_view value);

/// Status line to empty line. `common` holds formatted headers.
std::string format_head(const ResponseHead& head, std::string_view common, const Headers& headers);

}  // namespace asynct::http
