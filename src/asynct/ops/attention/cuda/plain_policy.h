#pragma once

#include <cstdint>

#include "asynct/ops/attention/cuda/policy.h"

namespace asynct::cuda {

/// Query rows of a unit of many rows: four warps' 16. Rows of a token stay together.
inline constexpr std::int32_t kPlainRows = 64;

/// Blocks that a multiprocessor runs at once: for many rows their registers allow no more, for few rows these
/// have enough bytes in flight.
constexpr std::int32_t plain_many_blocks(std::int32_t head_dim) { return head_dim == 64 ? 3 : 2; }
constexpr std::int32_t plain_few_blocks(std::int32_t head_dim) {
  return head_dim == 64 ? 4 : head_dim == 128 ? 3 : 2;
}

}  // namespace asynct::cuda
