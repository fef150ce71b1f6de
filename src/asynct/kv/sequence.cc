#include "asynct/kv/sequence.h"

namespace asynct {

Sequence Sequence::fork() const {
  Sequence twin(*pool_, block_size_);
  twin.length_ = length_;
  twin.blocks_ = blocks_;
  for (const std::int32_t block : blocks_) pool_->retain(block);
  return twin;
}

bool Sequence::last_block_is_shared_and_partial() const {
  return length_ % block_size_ != 0 && pool_->references(blocks_.back()) > 1;
}

std::int32_t Sequence::blocks_for(std::int64_t tokens) const {
  if (tokens == 0) return 0;
  const std::int64_t wanted = (length_ + tokens + block_size_ - 1) / block_size_;
  return static_cast<std::int32_t>(wanted - static_cast<std::int64_t>(blocks_.size())) +
         (last_block_is_shared_and_partial() ? 1 : 0);
}

std::optional<BlockCopy> Sequence::extend(std::int64_t tokens) {
  if (tokens == 0) return {};
  std::optional<BlockCopy> copy;
  if (last_block_is_shared_and_partial()) {
    copy = {.from = blocks_.back(), .to = pool_->allocate()};
    pool_->release(blocks_.back());
    blocks_.back() = copy->to;
  }
  length_ += tokens;
  while (static_cast<std::int64_t>(blocks_.size()) * block_size_ < length_)
    blocks_.push_back(pool_->allocate());
  return copy;
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
