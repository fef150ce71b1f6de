#pragma once

#include <cstdint>

namespace asynct {

using Token = std::int32_t;

}  // namespace asynct
