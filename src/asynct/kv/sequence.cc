#include "asynct/kv/sequence.h"

#include <cassert>

namespace asynct {

Sequence Sequence::fork() const {
  Sequence twin(*pool_, block_size_);
  twin.adopt(blocks_, length_);
  return twin;
}

void Sequence::adopt(std::span<const std::int32_t> blocks, std::int64_t tokens) {
  assert(blocks_.empty() && std::ssize(blocks) == (tokens + block_size_ - 1) / block_size_);
  length_ = tokens;
  blocks_.assign(blocks.begin(), blocks.end());
  for (const std::int32_t block : blocks) pool_->retain(block);
}

bool Sequence::must_copy_last_block() const {
  return length_ % block_size_ != 0 && (pool_->references(blocks_.back()) > 1 || pool_->kept(blocks_.back()));
}

std::int32_t Sequence::blocks_for(std::int64_t tokens) const {
  if (tokens == 0) return 0;
  const std::int64_t wanted = (length_ + tokens + block_size_ - 1) / block_size_;
  return static_cast<std::int32_t>(wanted - static_cast<std::int64_t>(blocks_.size())) +
         (must_copy_last_block() ? 1 : 0);
}

std::optional<BlockCopy> Sequence::extend(std::int64_t tokens) {
  if (tokens == 0) return {};
  std::optional<BlockCopy> copy;
  if (must_copy_last_block()) {
    copy = {.from = blocks_.back(), .to = pool_->allocate()};
    blocks_.back() = copy->to;
  }
  length_ += tokens;
  while (static_cast<std::int64_t>(blocks_.size()) * block_size_ < length_)
    blocks_.push_back(pool_->allocate());
  return copy;
}

void Sequence::replace(std::size_t index, std::int32_t block) {
  pool_->retain(block);
  pool_->release(std::exchange(blocks_[index], block));
}

void Sequence::clear() {
  // Tail first: under a cache that reuses freed blocks, the head of a sequence is the part worth keeping.
  while (!blocks_.empty()) {
    pool_->release(blocks_.back());
    blocks_.pop_back();
  }
  length_ = 0;
}

}  // namespace asynct
