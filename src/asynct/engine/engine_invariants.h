#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "asynct/engine/node.h"

namespace asynct {

/// All accounting of an engine between two steps, copied out of it, so that a checker cannot lean on the code
/// that it checks.
struct EngineSnapshot {
  struct Block {
    std::int32_t references = 0;
    bool kept = false;
    std::int64_t cached_tokens = 0;  // 0: not in the prefix cache
    std::int32_t cached_parent = -1;
  };
  struct Member {
    RequestId id = 0;
    RequestId parent = -1;
    std::int64_t priority = 0;
    Node::State state = Node::State::blocked;
    std::int64_t begin = 0;
    std::int64_t tokens = 0;
    std::int64_t next_row = 0;
    std::int64_t length = 0;  // of the sequence
    std::vector<std::int32_t> blocks;
    std::int64_t cached_blocks = 0;
    std::int64_t promise = 0;
    bool lent = false;
    bool borrowed = false;
    std::size_t children = 0;
    std::optional<OrderKey> awaits;  // who computes a prefix for it, or did until this step
  };

  std::int32_t block_size = 0;
  std::int64_t promised = 0;
  std::int32_t running = 0;
  std::vector<Block> blocks;
  std::vector<std::int32_t> free_queue;
  std::vector<Member> members;  // by id
  std::vector<RequestId> started;
  std::vector<RequestId> waiting;
};

/// Empty when everything adds up, else the first thing that does not. Reference counts equal what tables
/// hold, the free queue is what nobody holds, each request is in exactly the list its state says and lists
/// are in order, every token is accounted for, cached chains hang together, promises are those of their
/// owners, and whoever waits for another's prefix stands behind it.
std::string check(const EngineSnapshot& snapshot);

}  // namespace asynct
