#pragma once

#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/qkv_projection/cuda/finish_qkv.h"

// What becomes of a head of a packed qkv row, whatever its norm is.
namespace asynct::cuda {

enum class QkvPart { query, key, value };

template <class Params>
__device__ inline QkvPart qkv_part(const FinishQkvArgsOf<Params>& args, int head) {
  if (head < args.heads) return QkvPart::query;
  return head < args.heads + args.kv_heads ? QkvPart::key : QkvPart::value;
}

template <class Params>
__device__ inline bool has_norm(const FinishQkvArgsOf<Params>& args, QkvPart part) {
  return part == QkvPart::query ? args.has_q_norm : part == QkvPart::key && args.has_k_norm;
}

/// Cosines and sines of a position, `dim` on; a cosine of NaN where the table does not know it.
template <class Params, int kCount>
__device__ inline void load_rotation(const FinishQkvArgsOf<Params>& args, std::int32_t position, int dim,
                                     float (&cos)[kCount], float (&sin)[kCount]) {
  const bool known = position >= 0 && position < args.max_positions;
  const float* const from =
      args.cos_sin + static_cast<std::int64_t>(known ? position : 0) * args.head_dim + dim;
  load_vector(from, cos);
  load_vector(from + args.head_dim / 2, sin);
#pragma unroll
  for (float& c : cos) c = known ? c : __int_as_float(0x7fffffff);
}

/// Products round before they are added, as on the CPU.
template <int kCount>
__device__ inline void rotate(const float (&cos)[kCount], const float (&sin)[kCount], float (&low)[kCount],
                              float (&high)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float a = low[i], b = high[i];
    low[i] = __fsub_rn(__fmul_rn(a, cos[i]), __fmul_rn(b, sin[i]));
    high[i] = __fadd_rn(__fmul_rn(b, cos[i]), __fmul_rn(a, sin[i]));
  }
}

/// Where a head of the row goes: q, or a slot of the cache.
template <class Element, class Params>
__device__ inline Element* qkv_place(const FinishQkvArgsOf<Params>& args, QkvPart part, int head,
                                     std::int64_t row, std::int64_t slot) {
  if (part == QkvPart::query)
    return static_cast<Element*>(args.q) + row * args.q_stride + head * args.head_dim;
  const bool is_key = part == QkvPart::key;
  const KvTarget& target = is_key ? args.key : args.value;
  const std::int64_t block = slot >> args.block_shift;
  const std::int64_t token = slot & ((1 << args.block_shift) - 1);
  return static_cast<Element*>(target.data) + block * target.block_stride +
         (head - args.heads - (is_key ? 0 : args.kv_heads)) * target.head_stride +
         token * target.token_stride;
}

}  // namespace asynct::cuda
