#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "asynct/kv/block_pool.h"

namespace asynct {

/// A block whose contents must be copied before the next write.
struct BlockCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

/// A sequence in the cache: a block table and a length. Owns one reference to each of its blocks.
class Sequence {
 public:
  Sequence(BlockPool& pool, std::int32_t block_size) : pool_(&pool), block_size_(block_size) {}
  Sequence(Sequence&& other) noexcept { *this = std::move(other); }
  Sequence& operator=(Sequence&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_size_, other.block_size_);
    std::swap(length_, other.length_);
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~Sequence() { clear(); }

  std::int64_t length() const { return length_; }
  std::span<const std::int32_t> blocks() const { return blocks_; }

  /// A sequence with the same content that shares every block; whoever writes into a shared last block first
  /// gets a copy of it.
  Sequence fork() const;

  /// Takes `blocks`, whose first `tokens` hold this sequence's content, as a fork would. Contract: it is
  /// empty, and the blocks are used or kept.
  void adopt(std::span<const std::int32_t> blocks, std::int64_t tokens);

  /// Memory for a table of `tokens` more, so that extend() allocates none; takes no blocks.
  void reserve(std::int64_t tokens) {
    blocks_.reserve(static_cast<std::size_t>((length_ + tokens + block_size_ - 1) / block_size_));
  }

  /// Blocks that extend(tokens) would take from the pool.
  std::int32_t blocks_for(std::int64_t tokens) const;

  /// Makes room for `tokens` more and counts them as present. Contract: the pool has blocks_for(tokens)
  /// blocks. A copy that is returned must be done before the new tokens are written; its source still has the
  /// reference that was this sequence's, so that nothing overwrites it: the caller releases it then.
  [[nodiscard]] std::optional<BlockCopy> extend(std::int64_t tokens);

  /// Puts another block of equal content in the place of blocks()[index].
  void replace(std::size_t index, std::int32_t block);

  /// Slot (block * block_size + offset) of a position below length().
  std::int64_t slot(std::int64_t position) const {
    return std::int64_t{blocks_[static_cast<std::size_t>(position / block_size_)]} * block_size_ +
           position % block_size_;
  }

  void clear();

 private:
  bool must_copy_last_block() const;

  BlockPool* pool_ = nullptr;
  std::int32_t block_size_ = 0;
  std::int64_t length_ = 0;
  std::vector<std::int32_t> blocks_;
};

}  // namespace asynct
