#include "asynct/base/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "asynct/base/strings.h"

namespace asynct {
namespace {

LogLevel threshold() {
  const char* wish = std::getenv("ASYNCT_LOG");
  const std::string_view name = wish == nullptr ? "" : wish;
  if (name == "error") return LogLevel::error;
  if (name == "warning") return LogLevel::warning;
  if (name == "debug") return LogLevel::debug;
  return LogLevel::info;
}

constexpr std::string_view kNames[] = {"error", "warning", "info", "debug"};

}  // namespace

void log(LogLevel level, std::string_view message) {
  static const LogLevel limit = threshold();
  if (level > limit) return;
  const std::string line = cat("asynct: ", kNames[static_cast<int>(level)], ": ", message, "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace asynct
