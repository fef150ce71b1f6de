#include "asynct/engine/prefix_tree.h"

#include <algorithm>
#include <cassert>

namespace asynct {
namespace {

using Tokens = std::span<const std::int32_t>;

std::int64_t common_length(Tokens a, Tokens b, std::int64_t from) {
  const auto limit = static_cast<std::int64_t>(std::min(a.size(), b.size()));
  while (from < limit && a[static_cast<std::size_t>(from)] == b[static_cast<std::size_t>(from)]) ++from;
  return from;
}

// Sequences order[first, last) share their first `known` tokens; those before `depth` belong to `parent`.
struct Group {
  std::size_t first;
  std::size_t last;
  std::int64_t known;
  std::int64_t depth;
  std::int32_t parent;
};

}  // namespace

PrefixTree build_prefix_tree(std::span<const Tokens> sequences, std::int64_t min_shared) {
  PrefixTree tree;
  tree.last.assign(sequences.size(), -1);
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    if (!sequences[i].empty()) order.push_back(static_cast<std::int32_t>(i));
  const auto tokens = [&](std::size_t rank) { return sequences[static_cast<std::size_t>(order[rank])]; };
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const Tokens left = sequences[static_cast<std::size_t>(a)];
    const Tokens right = sequences[static_cast<std::size_t>(b)];
    const auto at = static_cast<std::size_t>(common_length(left, right, 0));
    if (at == left.size() || at == right.size())
      return left.size() != right.size() ? left.size() < right.size() : a < b;
    return left[at] < right[at];
  });

  const auto add_node = [&](const Group& group, std::int64_t end) {
    const auto index = static_cast<std::int32_t>(tree.nodes.size());
    if (group.parent >= 0) ++tree.nodes[static_cast<std::size_t>(group.parent)].children;
    tree.nodes.push_back(
        {.parent = group.parent, .sequence = order[group.first], .begin = group.depth, .end = end});
    return index;
  };

  std::vector<Group> pending;  // an explicit stack: depth is the caller's data
  if (!order.empty()) pending.push_back({0, order.size(), 0, 0, -1});
  while (!pending.empty()) {
    Group group = pending.back();
    pending.pop_back();
    // Sorted, so what the first and the last share, all share.
    const std::int64_t common = common_length(tokens(group.first), tokens(group.last - 1), group.known);
    const bool all_end_here = static_cast<std::int64_t>(tokens(group.last - 1).size()) == common;
    if (all_end_here || (group.last - group.first > 1 && common - group.depth >= min_shared)) {
      assert(common > group.depth);
      const std::int32_t node = add_node(group, common);
      while (group.first < group.last && static_cast<std::int64_t>(tokens(group.first).size()) == common)
        tree.last[static_cast<std::size_t>(order[group.first++])] = node;
      group.depth = common;
      group.parent = node;
    }
    // What is left differs after `common`: sequences that end there first, then one group a next token.
    // Pushed in reverse, so that the stack yields them in order.
    const std::size_t before = pending.size();
    std::size_t begin = group.first;
    while (begin < group.last) {
      std::size_t end = begin + 1;
      const auto next = [&](std::size_t rank) {
        const Tokens t = tokens(rank);
        return static_cast<std::int64_t>(t.size()) == common ? -1 : t[static_cast<std::size_t>(common)];
      };
      while (end < group.last && next(end) == next(begin)) ++end;
      pending.push_back({begin, end, common, group.depth, group.parent});
      begin = end;
    }
    std::reverse(pending.begin() + static_cast<std::ptrdiff_t>(before), pending.end());
  }
  return tree;
}

}  // namespace asynct
