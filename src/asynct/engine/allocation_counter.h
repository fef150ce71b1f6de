#pragma once

#include <cstdint>

namespace asynct {

/// Calls of the global operator new so far, in any thread. For tests: linking this in replaces the operator.
std::int64_t allocations();

/// Of this thread's calls from now on the `nth` throws std::bad_alloc; 0: none.
void fail_allocation(std::int64_t nth);

}  // namespace asynct
