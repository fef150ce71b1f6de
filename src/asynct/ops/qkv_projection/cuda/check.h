#pragma once

#include "asynct/ops/cuda/by_dtype.h"
#include "asynct/ops/norm/cuda/norm.h"
#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"

namespace asynct::cuda {

template <class Params>
void check_finish_qkv_args(const char* kernel, const FinishQkvArgsOf<Params>& args, DType dtype,
                           DType qkv_dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  if (args.heads <= 0 || args.kv_heads <= 0 || args.head_dim <= 0)
    fail(kernel, ": ", args.heads, " and ", args.kv_heads, " heads of ", args.head_dim,
         ", expected at least 1 of each");
  if (args.positions == nullptr || args.slots == nullptr) fail(kernel, ": no positions or no slots");
  if (args.head_dim % 2 != 0) fail(kernel, ": head_dim ", args.head_dim, ", expected an even number");
  if (args.block_shift < 0 || args.block_shift > 30)
    fail(kernel, ": blocks of 2^", args.block_shift, " tokens, expected 2^0 to 2^30");
  if (args.has_q_norm) check_norm(kernel, args.q_norm);
  if (args.has_k_norm) check_norm(kernel, args.k_norm);
  expect_aligned(kernel, "half a head", args.head_dim / 2 * size);
  expect_aligned(kernel, "the qkv stride", args.qkv_stride * static_cast<std::int64_t>(size_of(qkv_dtype)));
  expect_aligned(kernel, "the q stride", args.q_stride * size);
  expect_aligned(kernel, "qkv", args.qkv);
  expect_aligned(kernel, "q", args.q);
  expect_aligned(kernel, "table of cosines", args.cos_sin);
  for (const KvTarget* const target : {&args.key, &args.value}) {
    expect_aligned(kernel, "cache", target->data);
    expect_aligned(kernel, "a block's stride", target->block_stride * size);
    expect_aligned(kernel, "a head's stride", target->head_stride * size);
    expect_aligned(kernel, "a token's stride", target->token_stride * size);
  }
  if (args.q == args.qkv && (qkv_dtype != dtype || args.q_stride != args.qkv_stride))
    fail(kernel, ": q lies over qkv with another dtype or stride");
}

}  // namespace asynct::cuda
