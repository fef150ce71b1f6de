#pragma once

#include <cstdint>

namespace asynct {

/// What grammars may still cost on this thread: xgrammar's loops count what they do (cmake/xgrammar.cmake).
/// In units of work, not of time, so that what is refused depends on neither the machine nor the batch.
extern __thread std::int64_t
    work_left;  // C++17 has no constinit, without which each use would ask whether it is made

/// Throws OutOfWork.
[[noreturn]] void out_of_work();

inline void spend_work(std::int64_t units) {
  if ((work_left -= units) < 0) out_of_work();
}

}  // namespace asynct
