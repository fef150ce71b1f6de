#include "asynct/engine/scheduler.h"

#include <algorithm>
#include <cassert>

#include "asynct/engine/engine_invariants.h"

namespace asynct {

Scheduler::Scheduler(const EngineOptions& options)
    : options_(options),
      pool_(options.blocks),
      cache_(options.prefix_cache ? std::make_unique<PrefixCache>(pool_, options.block_size) : nullptr),
      scores_(options.prefix_cache ? std::int64_t{options.blocks} * options.block_size : 0) {}

// --- The order of requests

void Scheduler::add(Node& root) { wait(root); }

void Scheduler::wait(Node& node) {
  node.state = Node::State::waiting;
  waiting_.emplace(node.key(), &node);
}

// Takes a node that has started out of the order, and its blocks from it.
void Scheduler::stop(Node& node) {
  if (node.state == Node::State::running) --running_;
  started_.erase(std::find(started_.begin(), started_.end(), &node));
  node.sequence.clear();
  node.cached_blocks = 0;
  node.state = Node::State::done;
  update_promise(node);
  if (!std::exchange(node.borrowed, false)) return;
  node.parent->lent = false;
  update_promise(*node.parent);
}

void Scheduler::finish(Node& node) {
  assert(node.state == Node::State::running);
  if (node.children.empty()) return;
  node.state = Node::State::holding;
  --running_;
  update_promise(node);
  for (Node* child : node.children) wait(*child);
}

void Scheduler::leave(Node& node, bool keep) {
  assert(node.children.empty());
  if (node.state == Node::State::waiting) waiting_.erase(node.key());
  if (node.started()) {
    if (keep) keep_last_block(node);
    stop(node);
  }
  node.state = Node::State::done;
  if (node.parent == nullptr) return;
  std::erase(node.parent->children, &node);
  update_promise(*node.parent);
}

// --- One step

std::span<Work> Scheduler::schedule() {
  work_.clear();
  longer_.clear();
  prefills_.clear();
  std::int64_t budget = options_.batch_tokens;
  for (const Node* node : started_)
    if (node->state == Node::State::running && node->decoding()) --budget;
  const std::int64_t preemptions = counters_.preemptions;
  const auto chunk_of = [&](const Node& node) {
    const std::int64_t most = std::min(budget, node.rows_left());
    return options_.prefill_chunk > 0 ? std::min(most, options_.prefill_chunk) : most;
  };
  for (std::size_t i = 0; i < started_.size(); ++i) {
    Node& node = *started_[i];
    if (node.state != Node::State::running) continue;
    const std::int64_t rows = node.decoding() ? 1 : chunk_of(node);
    if (rows == 0) continue;
    if (!grow(node, rows)) break;  // it was the last of those started
    if (!node.decoding()) budget -= rows;
    take(node, rows);
  }
  // Something is always done: whoever had to give way may be the only one that is left.
  const auto may_admit = [&] {
    return counters_.preemptions == preemptions || (work_.empty() && longer_.empty());
  };
  candidate_ = waiting_.begin();
  deferred_ = 0;
  reserved_ = 0;
  while (may_admit() && budget > 0 && admit_next()) {
    Node& node = *admitted_;
    const std::int64_t rows = chunk_of(node);
    grow(node, rows);
    budget -= rows;
    take(node, rows);
  }
  // One-row sequences first: the attention kernels count on it.
  work_.insert(work_.end(), longer_.begin(), longer_.end());
  ++counters_.steps;
  return work_;
}

void Scheduler::take(Node& node, std::int64_t rows) {
  (rows > 1 ? longer_ : work_).push_back({.node = &node, .first_row = node.next_row, .rows = rows});
  if (node.rows_left() > 1) prefills_.push_back(&node);
  node.next_row += rows;
  counters_.rows += rows;
}

// Blocks for the next rows. False: the node itself had to give way.
bool Scheduler::grow(Node& node, std::int64_t rows) {
  const std::int64_t length = node.sequence.length();
  const std::int64_t tokens = std::max<std::int64_t>(0, node.begin + node.next_row + rows - length);
  node.written = std::max(node.next_row, length - node.begin);
  if (!make_room(node, node.sequence.blocks_for(tokens))) return false;
  const std::size_t blocks = node.sequence.blocks().size();
  if (const auto copy = node.sequence.extend(tokens)) {
    copies_.push_back(*copy);
    if (cache_ != nullptr) {
      const std::int64_t size = options_.block_size;
      scores_.forget(copy->to * size, size);
      scores_.merge(copy->from * size, copy->to * size, length % size);
    }
  }
  if (cache_ != nullptr)
    for (const std::int32_t block : node.sequence.blocks().subspan(blocks))
      scores_.forget(std::int64_t{block} * options_.block_size, options_.block_size);
  update_promise(node);
  return true;
}

bool Scheduler::make_room(Node& node, std::int32_t blocks) {
  while (blocks > pool_.free_blocks()) {
    Node& last = *started_.back();
    preempt(last);
    if (&last == &node) return false;
  }
  return true;
}

void Scheduler::preempt(Node& node) {
  keep_last_block(node);
  if (node.state == Node::State::holding) {
    for (Node* child : node.children) {
      assert(child->state == Node::State::waiting);
      waiting_.erase(child->key());
      child->state = Node::State::blocked;
    }
  }
  stop(node);
  node.next_row = 0;
  wait(node);
  ++counters_.preemptions;
}

void Scheduler::release_copied() {
  for (const BlockCopy& copy : copies_) pool_.release(copy.from);
  copies_.clear();
}

// --- Starting

bool Scheduler::admit_next() {
  while (candidate_ != waiting_.end() && running_ + deferred_ < options_.max_sequences) {
    Node& node = *candidate_->second;
    Plan planned;
    if (end_wait_if_over(node)) {
      planned = plan(node);
      if (!must_wait(node, planned)) return admit(node, planned);
    }
    ++candidate_;
    ++deferred_;
    reserved_ += node.awaited->blocks;
  }
  return false;
}

// Starts the candidate if there is room for it.
bool Scheduler::admit(Node& node, Plan planned) {
  const bool borrows = node.parent != nullptr && !node.parent->lent;
  const std::int64_t promised = promised_ + reserved_ - (borrows ? node.parent->promise : 0);
  if (planned.take + node.below + promised > pool_.free_blocks()) {
    // While anything runs, room will come.
    if (running_ > 0) return false;
    while (planned.take > pool_.free_blocks()) {
      preempt_holder_for(node);
      planned = plan(node);
    }
  }
  ++candidate_;
  start(node, planned);
  admitted_ = &node;
  return true;
}

// Nothing runs, and the blocks are with computed parents whose children wait behind `node`.
void Scheduler::preempt_holder_for(const Node& node) {
  const auto is_ancestor = [&](const Node* other) {
    for (const Node* up = node.parent; up != nullptr; up = up->parent)
      if (up == other) return true;
    return false;
  };
  const auto holder = std::find_if_not(started_.rbegin(), started_.rend(), is_ancestor);
  assert(holder != started_.rend());  // a chain with nobody else fits: submit() has checked
  preempt(**holder);
}

Scheduler::Plan Scheduler::plan(const Node& node) {
  Plan plan{.length = node.begin};
  if (cache_ != nullptr) {
    copy_tokens(node, 0, node.end(), path_);
    cache_->find(path_, root_of(node).request.cache_salt, match_);
    if (match_.tokens > node.begin) {
      plan.found = match_.blocks;
      plan.length = match_.tokens;
      for (const std::int32_t block : match_.blocks) plan.take += pool_.references(block) == 0 ? 1 : 0;
    }
  }
  if (node.end() > plan.length) plan.take += blocks_between(plan.length, node.end(), options_.block_size);
  return plan;
}

// Waiting for others' prefixes. Who is waited for stands before, is running and has prompt left: nobody that
// starts meanwhile takes rows or blocks from it, so it goes on as if it were alone with those before it. When
// it gets there, leaves or gives way, the wait is over.

// Whether it waits for nobody, from now on or before.
bool Scheduler::end_wait_if_over(Node& node) {
  if (!node.awaited) return true;
  const auto source = std::lower_bound(started_.begin(), started_.end(), node.awaited->source,
                                       [](const Node* a, const OrderKey& key) { return a->key() < key; });
  if (source != started_.end() && (*source)->key() == node.awaited->source &&
      (*source)->state == Node::State::running && (*source)->begin + (*source)->computed < node.awaited->end)
    return false;
  node.awaited.reset();
  return true;
}

// Whether the cache will soon hold more of the node's tokens than `plan` found. After plan(): path_ has them.
bool Scheduler::must_wait(Node& node, const Plan& plan) {
  if (cache_ == nullptr) return false;
  const Node* best = nullptr;
  std::int64_t end = 0;
  for (const Node* source : prefills_) {
    const std::int64_t shared = awaited_end(*source, node, plan);
    if (shared <= end) continue;
    end = shared;
    best = source;
  }
  if (best == nullptr) return false;
  node.awaited = {.source = best->key(), .end = end, .blocks = plan.take + node.below};
  return true;
}

namespace {

// Rows run again from the first on whose score `node` wants, unless `source` asks for it, too (and then for
// those that follow, it may be assumed).
std::int64_t first_row_to_run(const Node& source, const Node& node) {
  if (node.next_target == node.request.targets.size()) return node.end();
  const std::int64_t first = node.begin + node.request.targets[node.next_target].row;
  const bool asked =
      node.request.target_logprobs <= 1 &&
      std::binary_search(source.request.targets.begin(), source.request.targets.end(),
                         ScoreTarget{.row = static_cast<std::int32_t>(first - source.begin)},
                         [](const ScoreTarget& a, const ScoreTarget& b) { return a.row < b.row; });
  return asked ? node.end() : first;
}

}  // namespace

// Up to which position it is worth to wait for what `source` computes; 0: it is not.
std::int64_t Scheduler::awaited_end(const Node& source, const Node& node, const Plan& plan) const {
  // One that is not as far as the cache already is would take longer than the node itself.
  constexpr std::int64_t kLeast = PrefixCache::kMinTokens;
  if (source.key() > node.key() || source.begin + source.computed + kLeast < plan.length) return 0;
  const std::int64_t least = plan.length + kLeast;
  const auto differs = [&](std::int64_t at) {
    return at >= source.begin &&
           source.tokens[static_cast<std::size_t>(at - source.begin)] != path_[static_cast<std::size_t>(at)];
  };
  if (std::min(source.end(), std::ssize(path_)) < least || differs(plan.length) || differs(least - 1))
    return 0;
  if (root_of(source).request.cache_salt != root_of(node).request.cache_salt) return 0;
  std::int64_t end = std::min(common_tokens(source, path_), first_row_to_run(source, node));
  // Full blocks are found as they are computed, the rest once its request has ended.
  const bool ends = source.rows_left() == 0 && source.children.empty() &&
                    source.request.max_new_tokens - source.generated() <= 1;
  if (!ends) end -= end % options_.block_size;
  return std::min(end, std::ssize(path_) - 1) >= least ? end : 0;
}

void Scheduler::start(Node& node, const Plan& plan) {
  node.awaited.reset();
  waiting_.erase(node.key());
  if (!plan.found.empty()) {
    node.sequence.adopt(plan.found, plan.length);
  } else if (node.parent != nullptr) {
    node.sequence = node.parent->sequence.fork();
  }
  // All that it will hold, so that no later step allocates.
  const auto to_come = static_cast<std::size_t>(node.request.max_new_tokens - node.generated());
  const std::int64_t length = node.end() + static_cast<std::int64_t>(to_come);
  node.sequence.reserve(length - plan.length);
  most_blocks_ = std::max(most_blocks_, (length + options_.block_size - 1) / options_.block_size);
  node.tokens.reserve(node.tokens.size() + to_come);
  node.cached_blocks = cache_ != nullptr ? plan.length / options_.block_size : 0;
  if (node.parent != nullptr && !node.parent->lent) {
    node.parent->lent = node.borrowed = true;
    update_promise(*node.parent);
  }
  node.state = Node::State::running;
  ++running_;
  started_.insert(std::upper_bound(started_.begin(), started_.end(), &node,
                                   [](const Node* a, const Node* b) { return a->key() < b->key(); }),
                  &node);
  recall(node, plan.length - node.begin);
  update_promise(node);
}

// Finds the first row that must run though `present` of the node's tokens are in the cache, and takes the
// scores of targets before it from memory.
void Scheduler::recall(Node& node, std::int64_t present) {
  const auto tokens = static_cast<std::int64_t>(node.tokens.size());
  std::int64_t first = std::min(present, node.request.max_new_tokens > 0 ? tokens - 1 : tokens);
  const auto& targets = node.request.targets;
  while (node.next_target < targets.size() && targets[node.next_target].row < first) {
    const ScoreTarget& target = targets[node.next_target];
    const std::int64_t next = target.row + 1;
    const bool known = next < present && node.request.target_logprobs <= 1 &&
                       target.token == node.tokens[static_cast<std::size_t>(next)] &&
                       scores_.knows(node.sequence.slot(node.begin + next));
    if (known) {
      node.recalled.push_back(scores_.at(node.sequence.slot(node.begin + next)));
      ++node.next_target;
    } else {
      first = target.row;
    }
  }
  node.next_row = node.computed = first;
  if (!std::exchange(node.counted, true)) {
    counters_.prompt_tokens += tokens;
    counters_.cached_tokens += std::max<std::int64_t>(0, first);
  }
}

// --- The prefix cache

// Makes block `index` of the node's sequence findable with its tokens before position `end`. Returns the
// block that is found from now on, -1 if none is.
std::int32_t Scheduler::cache_block(const Node& node, std::int64_t index, std::int64_t end) {
  const std::int64_t begin = index * options_.block_size;
  const auto blocks = node.sequence.blocks();
  const std::int32_t own = blocks[static_cast<std::size_t>(index)];
  const std::int32_t parent = index > 0 ? blocks[static_cast<std::size_t>(index) - 1] : -1;
  copy_tokens(node, begin, end, path_);
  const std::int32_t kept = cache_->insert(parent, root_of(node).request.cache_salt, path_, own);
  if (kept >= 0 && kept != own)
    scores_.merge(std::int64_t{own} * options_.block_size, std::int64_t{kept} * options_.block_size,
                  end - begin);
  return kept;
}

void Scheduler::commit(const Work& work) {
  Node& node = *work.node;
  node.computed = node.next_row;
  if (cache_ == nullptr) return;
  const std::int64_t size = options_.block_size;
  for (std::int64_t i = node.cached_blocks; (i + 1) * size <= node.begin + node.next_row; ++i) {
    // Equal tokens after equal tokens are equal bits: one block is enough.
    const std::int32_t kept = cache_block(node, i, (i + 1) * size);
    if (kept != node.sequence.blocks()[static_cast<std::size_t>(i)])
      node.sequence.replace(static_cast<std::size_t>(i), kept);
    node.cached_blocks = i + 1;
  }
  if (node.unplaced_row >= 0 && node.begin + node.unplaced_row + 1 < node.sequence.length())
    scores_.put(node.sequence.slot(node.begin + std::exchange(node.unplaced_row, -1) + 1), node.unplaced);
}

void Scheduler::remember(Node& node, const ScoreTarget& target, const TokenScore& score) {
  const std::int64_t next = target.row + 1;
  if (cache_ == nullptr || next >= std::ssize(node.tokens) ||
      target.token != node.tokens[static_cast<std::size_t>(next)])
    return;
  if (node.begin + next < node.sequence.length()) {
    scores_.put(node.sequence.slot(node.begin + next), score);
  } else {  // its token belongs to the next chunk
    node.unplaced_row = target.row;
    node.unplaced = score;
  }
}

void Scheduler::keep_last_block(const Node& node) {
  const std::int64_t length = node.sequence.length();
  if (cache_ == nullptr || length % options_.block_size == 0 || length <= node.begin) return;
  const auto blocks = node.sequence.blocks();
  if (node.cached_blocks == std::ssize(blocks) - 1 && !pool_.kept(blocks.back()))
    cache_block(node, node.cached_blocks, length);
}

bool Scheduler::reset_cache() { return cache_ == nullptr || cache_->reset(); }

// --- Promises

void Scheduler::update_promise(Node& node) {
  std::int64_t promise = 0;
  if (node.state == Node::State::running && !node.decoding()) {
    promise += node.sequence.blocks_for(std::max<std::int64_t>(0, node.end() - node.sequence.length()));
  }
  if (node.started() && !node.lent && !node.children.empty()) promise += node.below;
  promised_ += promise - node.promise;
  node.promise = promise;
}

const Node& Scheduler::root_of(const Node& node) {
  const Node* root = &node;
  while (root->parent != nullptr) root = root->parent;
  return *root;
}

void Scheduler::describe(EngineSnapshot& snapshot) const {
  snapshot.block_size = options_.block_size;
  snapshot.running = running_;
  snapshot.promised = promised_;
  snapshot.free_queue = pool_.free_queue();
  for (std::int32_t block = 0; block < pool_.size(); ++block) {
    EngineSnapshot::Block& seen = snapshot.blocks.emplace_back();
    seen.references = pool_.references(block);
    seen.kept = pool_.kept(block);
    if (cache_ == nullptr) continue;
    seen.cached_tokens = cache_->tokens_of(block);
    seen.cached_parent = cache_->parent_of(block);
  }
  for (const Node* node : started_) snapshot.started.push_back(node->id);
  for (const auto& [key, node] : waiting_) snapshot.waiting.push_back(node->id);
}

}  // namespace asynct
