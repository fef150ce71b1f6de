#include "asynct/kv/block_pool.h"

#include <cassert>

namespace asynct {

BlockPool::BlockPool(std::int32_t blocks) : references_(static_cast<std::size_t>(blocks), 0) {
  free_.reserve(references_.size());
  for (std::int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

std::int32_t BlockPool::allocate() {
  assert(!free_.empty());
  const std::int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockPool::retain(std::int32_t block) {
  assert(references(block) > 0);
  ++references_[static_cast<std::size_t>(block)];
}

void BlockPool::release(std::int32_t block) {
  assert(references(block) > 0);
  if (--references_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
}

}  // namespace asynct
