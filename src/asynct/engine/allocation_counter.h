#pragma once

#include <cstdint>

namespace asynct {

/// Calls of the global operator new so far, in any thread. For tests: linking this in replaces the operator.
std::int64_t allocations();

}  // namespace asynct
