#pragma once

#include <cstdint>
#include <vector>

namespace asynct {

/// Which blocks of a KV cache are in use, with reference counts, so that sequences can share blocks. Knows no
/// tokens and no memory. Single-threaded: the engine owns it.
///
/// Free blocks wait in a queue and are taken from its head. A block whose content is kept (a prefix cache
/// holds it, keep()) goes to the tail when it becomes free, so the least recently used goes first; others go
/// to the head: they are warm in a CPU's caches, and nothing is lost with them.
class BlockPool {
 public:
  /// Hears that a kept block is about to be taken for new content.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_reuse(std::int32_t block) = 0;
  };

  explicit BlockPool(std::int32_t blocks);

  /// `observer` must outlive the pool's last allocate(); null: none.
  void observe(Observer* observer) { observer_ = observer; }

  std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()) - 1; }
  std::int32_t free_blocks() const { return free_count_; }
  std::int32_t references(std::int32_t block) const { return at(block).references; }
  bool kept(std::int32_t block) const { return at(block).kept; }

  /// A block with one reference. Contract: free_blocks() > 0 (admission control is the caller's).
  std::int32_t allocate();
  /// One more reference; takes a free block out of the queue.
  void retain(std::int32_t block);
  /// Drops one reference; the last one frees the block.
  void release(std::int32_t block);

  /// The content is worth keeping, or no longer. A free block that is dropped moves to the queue's head.
  void keep(std::int32_t block);
  void drop(std::int32_t block);

  /// Free blocks in the order in which they would be taken. For tests.
  std::vector<std::int32_t> free_queue() const;

 private:
  struct Block {
    std::int32_t references = 0;
    bool kept = false;
    std::int32_t before = 0;  // neighbours in the queue while free
    std::int32_t after = 0;
  };

  Block& at(std::int32_t block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(std::int32_t block) const { return blocks_[static_cast<std::size_t>(block)]; }
  std::int32_t end() const { return size(); }  // the last element stands for both ends of the queue
  void insert_after(std::int32_t place, std::int32_t block);
  void unlink(std::int32_t block);

  std::vector<Block> blocks_;  // and one more: end()
  std::int32_t free_count_ = 0;
  Observer* observer_ = nullptr;
};

}  // namespace asynct
