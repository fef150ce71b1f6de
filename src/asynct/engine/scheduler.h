#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "asynct/engine/engine_options.h"
#include "asynct/engine/node.h"
#include "asynct/engine/score_memory.h"
#include "asynct/kv/block_pool.h"
#include "asynct/kv/prefix_cache.h"

namespace asynct {

struct EngineSnapshot;

/// Decides which rows a step runs, and owns the blocks. Requests are ordered by priority, then by arrival.
///
/// A step takes, in that order, one row of every decoding request and chunks of prompts while the budget
/// lasts; then, unless something was preempted, waiting requests start, the first in order first: only with
/// room for the whole prompt and for the prompts of the longest chain of descendants, so that prompts rarely
/// collide. A request that begins as one before it does, whose prompt is being computed, waits for that
/// beginning and then finds it in the prefix cache; those behind it may start meanwhile, with what it leaves:
/// its place and blocks are kept. What a request generates is not reserved. When a block is missing, the last
/// in order among those that started gives up all of its blocks, waits again in its place and is computed
/// again later (its tokens stay, and its blocks stay findable in the prefix cache until they are reused). So
/// the first in order always goes on: no deadlock, and who waits is passed by nobody of equal priority. (The
/// later steps of a beam search come with a priority of their own, just before that of the search:
/// docs/engine.md, step 3.)
class Scheduler {
 public:
  explicit Scheduler(const EngineOptions& options);

  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  const PrefixCache* cache() const { return cache_.get(); }

  /// A root, blocked children below it; the node must stay where it is until leave().
  void add(Node& root);

  /// The rows of the next step, sequences of one row first, their blocks taken. Valid until the next call.
  std::span<Work> schedule();
  /// To be done before its rows are written.
  std::span<const BlockCopy> copies() const { return copies_; }
  /// After copies() were done, or given up.
  void release_copied();

  /// The work's rows are in the cache: makes their blocks findable.
  void commit(const Work& work);
  /// Remembers the score of a target of a node whose work was committed.
  void remember(Node& node, const ScoreTarget& target, const TokenScore& score);

  /// The node's own work ended well; children, if any, may start.
  void finish(Node& node);
  /// The node leaves, whatever its state; its children have left. `keep`: what it has in the cache is sound.
  void leave(Node& node, bool keep);

  /// Forgets all cached prefixes. False while any block is in use.
  bool reset_cache();

  /// Blocks that a request which has started may come to hold, the most so far.
  std::int64_t most_blocks() const { return most_blocks_; }

  const EngineCounters& counters() const { return counters_; }
  std::int32_t running() const { return running_; }
  std::int32_t waiting() const { return static_cast<std::int32_t>(waiting_.size()); }

  /// What check() of engine_invariants.h wants to know of the scheduler.
  void describe(EngineSnapshot& snapshot) const;

 private:
  using Waiting = std::pmr::map<OrderKey, Node*>;

  struct Plan {                           // how a node would start
    std::span<const std::int32_t> found;  // blocks of the cache
    std::int64_t length = 0;              // tokens that are there
    std::int32_t take = 0;                // free blocks that its prompt takes, found ones included
  };

  void take(Node& node, std::int64_t rows);
  bool grow(Node& node, std::int64_t rows);
  bool make_room(Node& node, std::int32_t blocks);
  void preempt(Node& node);
  bool admit_next();
  bool admit(Node& node, Plan planned);
  void preempt_holder_for(const Node& node);
  Plan plan(const Node& node);
  bool must_wait(Node& node, const Plan& plan);
  bool end_wait_if_over(Node& node);
  std::int64_t awaited_end(const Node& source, const Node& node, const Plan& plan) const;
  void start(Node& node, const Plan& plan);
  void recall(Node& node, std::int64_t present);
  std::int32_t cache_block(const Node& node, std::int64_t index, std::int64_t end);
  static const Node& root_of(const Node& node);
  void keep_last_block(const Node& node);
  void update_promise(Node& node);
  void wait(Node& node);
  void stop(Node& node);

  EngineOptions options_;
  BlockPool pool_;
  std::unique_ptr<PrefixCache> cache_;  // null: prefixes are not cached
  ScoreMemory scores_;
  std::pmr::unsynchronized_pool_resource memory_;  // of the maps: no allocation in the long run
  Waiting waiting_{&memory_};
  std::vector<Node*> started_;  // by key; running or holding
  std::int32_t running_ = 0;
  Node* admitted_ = nullptr;   // by the last admit_next()
  std::int64_t promised_ = 0;  // sum over started_
  std::int64_t most_blocks_ = 0;

  // Of one step; memory is kept.
  std::vector<Work> work_;
  std::vector<Work> longer_;     // of more than one row, until they follow the rest
  std::vector<Node*> prefills_;  // that compute more than one row from this step on
  Waiting::iterator candidate_;  // the next that may start
  std::int32_t deferred_ = 0;    // before it: wait for a prefix that another one computes
  std::int64_t reserved_ = 0;    // blocks kept for these
  std::vector<BlockCopy> copies_;
  std::vector<Token> path_;  // tokens of a sequence from its beginning
  PrefixCache::Match match_;
  EngineCounters counters_;
};

}  // namespace asynct
