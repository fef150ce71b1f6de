#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace asynct {

/// A tree over token sequences in which what they share at the beginning stands once.
struct PrefixTree {
  struct Node {
    std::int32_t parent = -1;   // index of an earlier node, -1: a root
    std::int32_t sequence = 0;  // any sequence through this node: its tokens [begin, end) are the node's
    std::int64_t begin = 0;     // tokens before this node (the parent's end)
    std::int64_t end = 0;
    std::int32_t children = 0;
  };
  std::vector<Node> nodes;         // parents before children, depth first
  std::vector<std::int32_t> last;  // [sequences] node in which each ends; -1: it is empty
};

/// Shared beginnings shorter than this are computed again rather than kept as a node: a fork costs a block
/// copy and a step of latency.
inline constexpr std::int64_t kMinSharedTokens = 8;

PrefixTree build_prefix_tree(std::span<const std::span<const std::int32_t>> sequences,
                             std::int64_t min_shared = kMinSharedTokens);

}  // namespace asynct
