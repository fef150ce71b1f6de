#include "asynct/kv/block_pool.h"

#include <cassert>

namespace asynct {

BlockPool::BlockPool(std::int32_t blocks) : blocks_(static_cast<std::size_t>(blocks) + 1) {
  at(end()).before = at(end()).after = end();
  for (std::int32_t block = 0; block < blocks; ++block) insert_after(at(end()).before, block);
}

void BlockPool::insert_after(std::int32_t place, std::int32_t block) {
  const std::int32_t after = at(place).after;
  at(block).before = place;
  at(block).after = after;
  at(place).after = block;
  at(after).before = block;
  ++free_count_;
}

void BlockPool::unlink(std::int32_t block) {
  at(at(block).before).after = at(block).after;
  at(at(block).after).before = at(block).before;
  --free_count_;
}

std::int32_t BlockPool::allocate() {
  assert(free_count_ > 0);
  const std::int32_t block = at(end()).after;
  unlink(block);
  if (at(block).kept && observer_ != nullptr) observer_->on_reuse(block);
  at(block).kept = false;
  at(block).references = 1;
  return block;
}

void BlockPool::retain(std::int32_t block) {
  if (at(block).references++ == 0) unlink(block);
}

void BlockPool::release(std::int32_t block) {
  assert(references(block) > 0);
  if (--at(block).references == 0) insert_after(at(block).kept ? at(end()).before : end(), block);
}

void BlockPool::keep(std::int32_t block) {
  assert(references(block) > 0);
  at(block).kept = true;
}

void BlockPool::drop(std::int32_t block) {
  if (!at(block).kept) return;
  at(block).kept = false;
  if (references(block) > 0) return;
  unlink(block);
  insert_after(end(), block);
}

std::vector<std::int32_t> BlockPool::free_queue() const {
  std::vector<std::int32_t> queue;
  for (std::int32_t block = at(end()).after; block != end(); block = at(block).after) queue.push_back(block);
  return queue;
}

}  // namespace asynct
