#pragma once

#include <string_view>

namespace asynct {

enum class LogLevel { error, warning, info, debug };

/// Writes one line to standard error when `level` is at or above the threshold (default info;
/// ASYNCT_LOG=error|warning|info|debug; another value is warned of once). The message is made printable().
/// Safe to call from any thread: a line is one write.
void log(LogLevel level, std::string_view message);

}  // namespace asynct
