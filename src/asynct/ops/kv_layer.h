#pragma once

#include <cstdint>

#include "asynct/tensor/dtype.h"

namespace asynct {

/// Keys, or values, of one layer as a strided view [blocks, kv_head, token in block, dim]; strides in
/// elements. FlashAttention's, vLLM's and our own layouts are all of this form.
struct KvPages {
  void* data = nullptr;
  DType dtype = DType::f32;  // f32 or bf16
  std::int64_t block_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t dim_stride = 0;

  std::int64_t offset(std::int64_t block, std::int64_t head, std::int64_t token, std::int64_t dim) const {
    return block * block_stride + head * head_stride + token * token_stride + dim * dim_stride;
  }
};

/// One layer's paged cache. The CPU engine lays keys out with token_stride 1 (a vector of scores is then one
/// load a dimension) and values with dim_stride 1; kernels take any strides, at lower speed.
struct KvLayer {
  KvPages key;
  KvPages value;
  std::int32_t block_size = 16;  // tokens a block: 8, 16, 32, 64 or 128
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
};

}  // namespace asynct
