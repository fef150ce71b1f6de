#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/norm/cuda/args.h"
#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// Keys, or values, of one layer as attention's KvView, to be written: strides in elements, dims contiguous.
struct KvTarget {
  void* data = nullptr;
  std::int64_t block_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

/// What follows the qkv product: q = rope(q_norm(q)), k = rope(k_norm(k)), k and v into their slots. Strides
/// in elements, device memory.
template <class Params>
struct FinishQkvArgsOf {
  const void* qkv = nullptr;  // [rows, (heads + 2 kv_heads) * head_dim]: q, then k, then v
  void* q = nullptr;          // [rows, heads * head_dim]; may be qkv, with its stride, when dtypes are equal
  std::int64_t qkv_stride = 0;
  std::int64_t q_stride = 0;
  const std::int32_t* positions = nullptr;  // [rows]
  const std::int64_t* slots = nullptr;      // [rows] block * block_size + offset; below 0: not written
  const float* cos_sin = nullptr;           // [max_positions][cos [head_dim / 2], sin [head_dim / 2]]
  KvTarget key;
  KvTarget value;
  std::int64_t rows = 0;
  std::int32_t max_positions = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_shift = 4;  // log2 of tokens a block
  bool has_q_norm = false;
  bool has_k_norm = false;
  Params q_norm;  // over head_dim, shared by heads
  Params k_norm;
};
using FinishQkvArgs = FinishQkvArgsOf<DyhtParams>;
using RmsFinishQkvArgs = FinishQkvArgsOf<RmsParams>;

/// Launches it on `stream`; dtype bf16, f16 or f32 of q and the cache, `qkv_dtype` that or f32. Norm and
/// rotation in float without rounding between, one rounding at the end, as on the CPU; values are rounded
/// alike. A position outside of the table gives NaN. Halves of a head, pointers and strides are multiples of
/// 16 bytes. Reads positions, slots and the table before the kernel before it has ended: these are a step's
/// plan, older than that. Error for anything else.
void run_finish_qkv(const FinishQkvArgs& args, DType dtype, DType qkv_dtype, cudaStream_t stream);

/// The same with RMS norms. Without norms the two are equal.
void run_rms_finish_qkv(const RmsFinishQkvArgs& args, DType dtype, DType qkv_dtype, cudaStream_t stream);

}  // namespace asynct::cuda
