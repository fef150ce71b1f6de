#pragma once

#include <cstdint>
#include <vector>

namespace asynct {

/// Which blocks of a KV cache are in use, with reference counts, so that sequences can share blocks. Knows no
/// tokens and no memory. Single-threaded: the engine owns it.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::int32_t size() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t references(std::int32_t block) const { return references_[static_cast<std::size_t>(block)]; }

  /// A block with one reference. Contract: free_blocks() > 0 (admission control is the caller's).
  std::int32_t allocate();
  void retain(std::int32_t block);
  /// Drops one reference; the last one frees the block.
  void release(std::int32_t block);

 private:
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t>
      free_;  // a stack: the block freed last is warm in the cache, so it goes out first
};

}  // namespace asynct
