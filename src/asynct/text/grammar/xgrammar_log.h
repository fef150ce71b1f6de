#pragma once

#include <string>

namespace asynct {

/// What xgrammar warned of on this thread since the last call. It warns of what it passes over.
std::string take_xgrammar_warning();

}  // namespace asynct
