#pragma once

#include <string>
#include <string_view>

#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// decode.h's and prefill.h's kernels for sm_90a; plain.h's for sm_80 and later.
enum class AttentionPath { decode, prefill, plain };
std::string_view name(AttentionPath path);

/// What a call of attention asks for.
struct AttentionCase {
  DType dtype = DType::bf16;
  std::int32_t head_dim = 0;
  std::int32_t pool_size = 3;
  std::int32_t group = 1;                // query heads a KV head
  std::int32_t tokens = 1;               // most rows of a sequence
  std::int32_t block_size = 16;          // 0: keys and values in one piece
  std::int32_t compute_capability = 90;  // 10 times major plus minor
};

struct AttentionChoice {
  AttentionPath path = AttentionPath::plain;
  std::string reason;  // of the plain path: what the faster kernels do not take
};

/// The fastest kernels that take a case; Error when none does, CudaError for a GPU that is too old. All of
/// them give the same bits, so a step may be parted between them.
AttentionChoice choose_path(const AttentionCase& wanted);

/// "plain: blocks of 24 tokens".
std::string describe(const AttentionChoice& choice);

}  // namespace asynct::cuda
