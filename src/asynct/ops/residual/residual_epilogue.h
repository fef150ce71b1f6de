#pragma once

#include <cstdint>

#include "asynct/ops/norm/norm.h"

namespace asynct {

/// What follows a product that returns to the residual stream, for rows [begin, end):
///   residual += post == nullptr ? product : post(product);   next_input = next(residual)
/// Each store rounds in bf16 precision. Serial: it runs as a RowEpilogue.
struct ResidualEpilogue {
  const OpContext& context;
  Matrix product;     // [T, d]
  Matrix residual;    // [T, d]
  Matrix next_input;  // [T, d]; may be product
  const Norm* post;   // null: none
  const Norm& next;   // the next block's norm, or the final norm

  void operator()(std::int64_t begin, std::int64_t end, int worker) const;
};

}  // namespace asynct
