#pragma once

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/norm.h"

namespace asynct::cuda {

inline void check_channels(const char* kernel, const char* what, const ChannelParam& param) {
  if (param.values == nullptr) fail(kernel, ": no ", what);
  if (param.per_channel) expect_aligned(kernel, what, param.values);
}

template <class Params>
void check_norm_args(const char* kernel, const NormArgsOf<Params>& args, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (args.heads <= 0 || args.dims <= 0)
    fail(kernel, ": ", args.heads, " heads of ", args.dims, ", expected at least 1 of each");
  if (args.rows < 0) fail(kernel, ": ", args.rows, " rows, expected 0 or more");
  check_norm(kernel, args.norm);
  expect_aligned(kernel, "vectors", args.dims * size);
  expect_aligned(kernel, "x's row stride", args.x_row_stride * size);
  expect_aligned(kernel, "x's head stride", args.x_head_stride * size);
  expect_aligned(kernel, "y's row stride", args.y_row_stride * size);
  expect_aligned(kernel, "y's head stride", args.y_head_stride * size);
  expect_aligned(kernel, "x", args.x);
  expect_aligned(kernel, "y", args.y);
}

}  // namespace asynct::cuda
