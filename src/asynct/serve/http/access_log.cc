#include "asynct/serve/http/access_log.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "asynct/base/json.h"
#include "asynct/serve/http/server.h"

namespace asynct::http {
namespace {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<Milliseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  char text[80];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900, t.tm_mon + 1,
                t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, static_cast<int>(milliseconds % 1000));
  return text;
}

}  // namespace

std::string access_line(const AccessRecord& record) {
  return dump_json(Json{{"time", utc_now()},
                        {"request_id", record.request_id},
                        {"client", record.client},
                        {"method", record.method},
                        {"path", record.path},
                        {"status", record.status},
                        {"bytes", record.bytes},
                        {"milliseconds", std::round(record.milliseconds * 1000) / 1000},
                        {"disconnected", record.disconnected}});
}

std::function<void(std::string_view)> log_lines_to(std::FILE* file) {
  return [file](std::string_view line) {
    std::string whole(line);
    whole += '\n';
    std::fwrite(whole.data(), 1, whole.size(), file);  // one call: lines of several threads stay whole
    std::fflush(file);
  };
}

}  // namespace asynct::http
