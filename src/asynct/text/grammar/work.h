#pragma once

#include <cstdint>

namespace asynct {

/// What grammars may still cost on this thread: xgrammar's loops count what they do (cmake/xgrammar.cmake).
/// In units of work, not of time, so that what is refused depends on neither the machine nor the batch.
extern constinit thread_local std::int64_t work_left;

/// Throws OutOfWork.
[[noreturn]] void out_of_work();

inline void spend_work(std::int64_t units) {
  if ((work_left -= units) < 0) out_of_work();
}

}  // namespace asynct
