#pragma once

#include <cstdint>

#include "asynct/ops/context.h"
#include "asynct/tensor/dtype.h"

namespace asynct {

/// What an operator does to values it stores: rounds them to bf16 in that precision.
inline void round_if_bf16(Precision precision, float* values, std::int64_t count) {
  if (precision != Precision::bf16) return;
  for (std::int64_t i = 0; i < count; ++i) values[i] = round_to_bf16(values[i]);
}

}  // namespace asynct
