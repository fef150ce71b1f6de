#include "asynct/kv/kv_cache.h"

#include <cstring>

#include "asynct/base/checked.h"

namespace asynct {

KvCache::KvCache(const KvShape& shape, std::int32_t blocks) : shape_(shape), blocks_(blocks) {
  const std::size_t bytes = checked_mul(half_bytes(), static_cast<std::size_t>(blocks), "KV cache");
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    keys_.emplace_back(bytes, Pages::small);
    values_.emplace_back(bytes, Pages::small);
  }
}

KvLayer KvCache::layer(std::int32_t index) const {
  const std::int64_t head = std::int64_t{shape_.head_dim} * shape_.block_size;
  const std::int64_t block = head * shape_.kv_heads;
  const auto at = static_cast<std::size_t>(index);
  return {.key = {keys_[at].data(), shape_.dtype, block, head, 1, shape_.block_size},
          .value = {values_[at].data(), shape_.dtype, block, head, shape_.head_dim, 1},
          .block_size = shape_.block_size,
          .kv_heads = shape_.kv_heads,
          .head_dim = shape_.head_dim};
}

void KvCache::copy_block(std::int32_t from, std::int32_t to) {
  const std::size_t bytes = half_bytes();
  const auto copy = [&](const Buffer& buffer) {
    std::memcpy(buffer.data() + static_cast<std::size_t>(to) * bytes,
                buffer.data() + static_cast<std::size_t>(from) * bytes, bytes);
  };
  for (const Buffer& buffer : keys_) copy(buffer);
  for (const Buffer& buffer : values_) copy(buffer);
}

}  // namespace asynct
