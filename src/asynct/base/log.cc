#include "asynct/base/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "asynct/base/printable.h"
#include "asynct/base/strings.h"

namespace asynct {
namespace {

constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};

void write_line(LogLevel level, std::string_view message) {
  const std::string line = cat("asynct: ", kNames[static_cast<int>(level)], ": ", printable(message), "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

LogLevel threshold() {
  const char* wish = std::getenv("ASYNCT_LOG");
  const std::string_view name = wish == nullptr ? "" : wish;
  for (const LogLevel level : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug})
    if (name == kNames[static_cast<int>(level)]) return level;
  if (!name.empty())
    write_line(LogLevel::warning,
               cat("ASYNCT_LOG is \"", name, "\", expected error, warning, info or debug; info is taken"));
  return LogLevel::info;
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  static const LogLevel limit = threshold();
  if (level <= limit) write_line(level, message);
}

}  // namespace asynct
