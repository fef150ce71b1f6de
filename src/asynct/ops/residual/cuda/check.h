#pragma once

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/norm.h"
#include "asynct/ops/residual/cuda/residual.h"

namespace asynct::cuda {

template <class Params>
void check_residual_args(const char* kernel, const ResidualArgsOf<Params>& args, DType dtype,
                         DType product_dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto product_size = static_cast<std::int64_t>(size_of(product_dtype));
  if (args.size <= 0) fail(kernel, ": rows of ", args.size, ", expected at least 1");
  if (args.has_post) check_norm(kernel, args.post);
  check_norm(kernel, args.next);
  expect_aligned(kernel, "rows", args.size * size);
  expect_aligned(kernel, "the product's stride", args.product_stride * product_size);
  expect_aligned(kernel, "the residual's stride", args.residual_stride * size);
  expect_aligned(kernel, "the next input's stride", args.next_stride * size);
  expect_aligned(kernel, "product", args.product);
  expect_aligned(kernel, "residual", args.residual);
  expect_aligned(kernel, "next input", args.next_input);
  if (args.next_input == args.product && product_dtype != dtype)
    fail(kernel, ": the next input of ", name(dtype), " lies over a product of ", name(product_dtype));
}

}  // namespace asynct::cuda
