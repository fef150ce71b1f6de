#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/kv/block_pool.h"

namespace asynct {

/// Blocks found again by the tokens that they and all blocks before them hold: a tree whose nodes are blocks.
/// A child is looked up by its parent and a hash of its tokens, and the tokens are compared, so that a hit is
/// never a collision. Roots are told apart by a salt too. Blocks that no sequence uses stay findable until
/// the pool takes them for something else, the least recently used first.
///
/// The last block of a chain may be full or not, and a search may end inside of a block; whoever goes on from
/// there copies it (Sequence::extend). So prefixes are shared to the token, not to the block.
///
/// Memory is fixed at construction; only salts of more than a few characters allocate.
class PrefixCache : public BlockPool::Observer {
 public:
  /// Observes `pool`, which must outlive it.
  PrefixCache(BlockPool& pool, std::int32_t block_size);
  ~PrefixCache() override { pool_.observe(nullptr); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    std::vector<std::int32_t> blocks;  // of the sequence from its beginning; holds no references
    std::int64_t tokens = 0;           // found in them
  };
  /// The longest cached beginning of `tokens`. Beginnings of less than kMinTokens inside of a block do not
  /// count.
  void find(std::span<const std::int32_t> tokens, std::string_view salt, Match& match) const;

  /// Makes `block` findable as what follows `parent` (-1: nothing) and holds `tokens`. Returns the block that
  /// is found from now on: another one of equal content when there was one. Fewer tokens than a block has
  /// place for are kept only when they are kMinTokens and nothing findable begins with them; else -1.
  /// Contract: somebody holds `block`; `parent` is findable.
  std::int32_t insert(std::int32_t parent, std::string_view salt, std::span<const std::int32_t> tokens,
                      std::int32_t block);

  /// Forgets everything. False, and nothing happens, while any block is in use.
  bool reset();

  std::int32_t cached_blocks() const { return cached_; }
  std::int64_t tokens_of(std::int32_t block) const { return entry(block).count; }  // 0: not cached
  std::int32_t parent_of(std::int32_t block) const { return entry(block).parent; }

  void on_reuse(std::int32_t block) override;

  /// Shorter pieces are cheaper to compute again than to copy.
  static constexpr std::int64_t kMinTokens = 8;

 private:
  struct Entry {
    std::int32_t count = 0;  // tokens; 0: not cached
    std::int32_t parent = -1;
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    std::int32_t previous_sibling = -1;
    std::uint64_t full_hash = 0;   // of parent, salt and all tokens
    std::uint64_t start_hash = 0;  // of parent, salt and the first kMinTokens
    std::int32_t next_full = -1;   // in the same bucket
    std::int32_t next_start = -1;
  };

  Entry& entry(std::int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  const Entry& entry(std::int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  std::span<const std::int32_t> tokens(std::int32_t block) const;
  std::size_t bucket(std::uint64_t hash) const { return hash & (full_buckets_.size() - 1); }
  bool belongs(std::int32_t block, std::int32_t parent, std::string_view salt) const;
  std::int32_t find_full(std::int32_t parent, std::string_view salt,
                         std::span<const std::int32_t> tokens) const;
  std::int32_t find_start(std::int32_t parent, std::string_view salt, std::span<const std::int32_t> tokens,
                          std::int64_t& common) const;
  void forget(std::int32_t block);

  BlockPool& pool_;
  std::int32_t block_size_;
  std::int64_t start_tokens_;  // hashed by start_hash
  std::int32_t cached_ = 0;
  std::vector<Entry> entries_;              // [blocks]
  std::vector<std::int32_t> tokens_;        // [blocks][block_size]
  std::vector<std::string> salts_;          // [blocks], of those without a parent
  std::vector<std::int32_t> full_buckets_;  // power of two many; -1: empty
  std::vector<std::int32_t> start_buckets_;
};

}  // namespace asynct
