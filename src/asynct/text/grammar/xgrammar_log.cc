// xgrammar's log, its errors and its count of work (cmake/xgrammar.cmake).
#include "asynct/text/grammar/xgrammar_log.h"

#include <support/logging.h>

#include <utility>

#include "asynct/text/grammar/work.h"

namespace asynct {
namespace {

thread_local std::string warning;

}  // namespace

__thread std::int64_t work_left = 0;

void out_of_work() { throw xgrammar::LogFatalError(__FILE__, __LINE__, "too much work"); }

std::string take_xgrammar_warning() { return std::exchange(warning, {}); }

}  // namespace asynct

namespace xgrammar {

void LogFatalImpl(const std::string& file, int line, const std::string& message) {
  throw LogFatalError(file, line, message);
}

void LogMessageImpl(const std::string& /*file*/, int /*line*/, int level, const std::string& message) {
  if (level >= XGRAMMAR_LOG_LEVEL_WARNING && asynct::warning.empty()) asynct::warning = message;
}

}  // namespace xgrammar
