#pragma once

#include "asynct/engine/engine.h"

namespace asynct {

/// A request inside the engine.
///
/// Blocks are promised before they are taken. A node's chain is what it needs itself plus the longest chain
/// below it; whoever is started holds a claim on its whole chain. One child at a time may borrow the part of
/// its parent's claim that lies below the parent; other children claim from the pool. So of the live nodes of
/// a tree one chain down to a leaf can always go on.
struct Engine::Node {
  RequestId id = 0;
  Request request;
  Node* parent = nullptr;
  std::vector<Node*> children;

  std::int32_t own_blocks = 0;    // upper bound, copy of a shared partial block included
  std::int32_t chain_blocks = 0;  // own_blocks + longest chain below
  bool borrowed = false;          // the claim is the parent's
  bool lent = false;              // a child borrows ours

  Sequence sequence;            // valid once started
  std::vector<Token> tokens;    // request's, then generated
  std::int64_t computed = 0;    // of tokens, in the cache
  std::size_t next_target = 0;  // of request.targets
  bool started = false;
  bool finished = false;  // own work is done; may live on for its children
  std::size_t unstarted_children = 0;
  std::size_t unretired_children = 0;

  Node(BlockPool& pool, std::int32_t block_size) : sequence(pool, block_size) {}

  bool generating() const { return computed >= static_cast<std::int64_t>(request.tokens.size()); }
  std::int64_t generated() const {
    return static_cast<std::int64_t>(tokens.size()) - static_cast<std::int64_t>(request.tokens.size());
  }
};

}  // namespace asynct
