#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "asynct/engine/logits_processor.h"
#include "asynct/engine/request.h"
#include "asynct/kv/sequence.h"

namespace asynct {

/// Where a request stands in the order: priority, arrival.
using OrderKey = std::pair<std::int64_t, RequestId>;

/// A request inside the engine. Rows are indexes into `tokens`; row i has position begin + i.
struct Node {
  enum class State {
    blocked,  // continues a parent that is not computed
    waiting,  // may start
    running,
    holding,  // its own work is done; its blocks are there for its children
    done,     // to be taken away
  };

  Node(BlockPool& pool, std::int32_t block_size) : sequence(pool, block_size) {}

  RequestId id = 0;
  Request request;
  Node* parent = nullptr;
  std::vector<Node*> children;   // that have not left the engine
  std::int64_t begin = 0;        // tokens before this node, its ancestors'
  std::int32_t below = 0;        // blocks that the longest chain of descendants takes for its prompts
  bool lent = false;             // a child's blocks come out of what was promised to `below`
  bool borrowed = false;         // the parent's promise counts for this node
  bool reported = false;         // on_finished() was called; a preempted parent is computed again silently
  State state = State::blocked;  // changed by the scheduler

  std::optional<LogitsProcessor> processor;     // only when the parameters ask for one
  std::unique_ptr<TokenConstraint> constraint;  // the request's, as far as the text has come
  std::vector<TokenLogprob> logprobs;           // of the token just chosen

  Sequence sequence;                 // empty unless running or holding
  std::vector<Token> tokens;         // the request's, then generated ones
  std::int64_t next_row = 0;         // the next to run through the model
  std::int64_t computed = 0;         // rows before this one have been through it: next_row but for this step
  std::size_t next_target = 0;       // of request.targets
  std::int64_t cached_blocks = 0;    // full blocks of `sequence` that the prefix cache holds
  std::int64_t written = 0;          // rows before this one need not be written: the cache has them
  std::int64_t promise = 0;          // blocks that it, or a chain below it, may still ask for
  bool counted = false;              // its tokens are in the counters
  std::vector<TokenScore> recalled;  // scores of targets that were remembered, to be delivered
  std::int64_t unplaced_row = -1;    // target whose score has no slot yet: its token is in the next chunk
  TokenScore unplaced;

  // A beginning of its tokens that another request is computing, and for which it waits.
  struct Awaited {
    OrderKey source;          // who computes it
    std::int64_t end = 0;     // first position after it
    std::int64_t blocks = 0;  // kept for this one meanwhile
  };
  std::optional<Awaited> awaited;

  OrderKey key() const { return {request.priority, id}; }
  std::int64_t rows_left() const { return static_cast<std::int64_t>(tokens.size()) - next_row; }
  std::int64_t generated() const {
    return static_cast<std::int64_t>(tokens.size()) - static_cast<std::int64_t>(request.tokens.size());
  }
  std::int64_t end() const { return begin + static_cast<std::int64_t>(tokens.size()); }
  /// One row a step from here on.
  bool decoding() const { return generated() > 0 && rows_left() == 1; }
  bool started() const { return state == State::running || state == State::holding; }
};

/// Tokens [begin, end) of the sequence that ends with `node`, its ancestors' included.
void copy_tokens(const Node& node, std::int64_t begin, std::int64_t end, std::vector<Token>& tokens);

/// How many tokens the sequence that ends with `node` and `tokens` have in common from the beginning.
std::int64_t common_tokens(const Node& node, std::span<const Token> tokens);

/// Blocks that the tokens [begin, end) of a sequence take when the block of token `begin` - 1 may not be
/// written.
inline std::int32_t blocks_between(std::int64_t begin, std::int64_t end, std::int64_t block_size) {
  return static_cast<std::int32_t>((end + block_size - 1) / block_size - begin / block_size);
}

/// No token may come next, by the request's own parameters.
inline constexpr Token kNoneAllowed = -2;

/// Rows of one node in one step.
struct Work {
  Node* node = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;  // 0: everything it wants was found in the cache

  // Filled in by the engine.
  std::size_t target_begin = 0;  // of the node's targets
  std::size_t target_end = 0;
  std::size_t first_score = 0;   // of the step's scores
  std::int32_t sample_row = -1;  // hidden row to sample from, -1: none
  Token sampled = -1;            // from it; -1: its logits hold a NaN, or kNoneAllowed
};

}  // namespace asynct
