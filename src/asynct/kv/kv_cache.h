#pragma once

#include <cstdint>
#include <vector>

#include "asynct/ops/kv_layer.h"
#include "asynct/tensor/tensor.h"

namespace asynct {

struct KvShape {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;
  DType dtype = DType::f32;

  /// Bytes of one block over all layers, keys and values.
  std::size_t block_bytes() const {
    return static_cast<std::size_t>(layers) * 2 * static_cast<std::size_t>(kv_heads) *
           static_cast<std::size_t>(head_dim) * static_cast<std::size_t>(block_size) * size_of(dtype);
  }
  std::size_t token_bytes() const { return block_bytes() / static_cast<std::size_t>(block_size); }
};

/// Memory of the paged KV cache in the CPU layout: keys [block][head][D][token], values
/// [block][head][token][D]. One allocation a layer; pages become resident when they are first written.
class KvCache {
 public:
  KvCache(const KvShape& shape, std::int32_t blocks);

  const KvShape& shape() const { return shape_; }
  std::int32_t blocks() const { return blocks_; }
  KvLayer layer(std::int32_t index) const;

  /// Copies all layers of a block: the write half of copy-on-write.
  void copy_block(std::int32_t from, std::int32_t to);

 private:
  std::size_t half_bytes() const {
    return shape_.block_bytes() / 2 / static_cast<std::size_t>(shape_.layers);
  }

  KvShape shape_;
  std::int32_t blocks_;
  std::vector<Buffer> keys_;    // [layers] of [blocks][heads][D][block_size]
  std::vector<Buffer> values_;  // [layers] of [blocks][heads][block_size][D]
};

}  // namespace asynct
