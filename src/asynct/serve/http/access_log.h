#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace asynct::http {

struct AccessRecord {
  std::string_view request_id, client, method, path;
  int status = 0;  // 0: nothing was answered
  std::uint64_t bytes = 0;
  double milliseconds = 0;
  bool disconnected = false;  // before the response was complete
};

/// The line of ServerOptions::access_log, stamped with the time now (UTC, ISO 8601).
std::string access_line(const AccessRecord& record);

}  // namespace asynct::http
