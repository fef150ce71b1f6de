#include "asynct/engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <random>

namespace asynct {
namespace {

using Sequences = std::vector<std::vector<std::int32_t>>;

PrefixTree build(const Sequences& sequences, std::int64_t min_shared) {
  const std::vector<std::span<const std::int32_t>> views(sequences.begin(), sequences.end());
  return build_prefix_tree(views, min_shared);
}

// Tokens on the path from the root to the node in which `sequence` ends.
std::vector<std::int32_t> path_tokens(const PrefixTree& tree, const Sequences& sequences,
                                      std::size_t sequence) {
  std::vector<std::int32_t> path;
  std::vector<std::int32_t> nodes;
  for (std::int32_t node = tree.last[sequence]; node >= 0;
       node = tree.nodes[static_cast<std::size_t>(node)].parent)
    nodes.push_back(node);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const auto& node = tree.nodes[static_cast<std::size_t>(*it)];
    EXPECT_EQ(node.begin, static_cast<std::int64_t>(path.size()));
    EXPECT_LT(node.begin, node.end);
    const auto& owner = sequences[static_cast<std::size_t>(node.sequence)];
    path.insert(path.end(), owner.begin() + node.begin, owner.begin() + node.end);
  }
  return path;
}

std::int64_t total_tokens(const PrefixTree& tree) {
  std::int64_t total = 0;
  for (const auto& node : tree.nodes) total += node.end - node.begin;
  return total;
}

TEST(PrefixTree, SharesAContextOnce) {
  const Sequences sequences = {{1, 2, 3, 4, 7}, {1, 2, 3, 4, 8, 9}, {1, 2, 3, 4}, {5, 6}};
  const auto tree = build(sequences, 2);
  EXPECT_EQ(tree.nodes.size(), 4U);  // context, two choices, the stranger
  EXPECT_EQ(total_tokens(tree), 4 + 1 + 2 + 2);
  EXPECT_EQ(tree.nodes[static_cast<std::size_t>(tree.last[2])].children, 2);
}

TEST(PrefixTree, EqualSequencesAreOneNode) {
  const auto tree = build({{1, 2}, {1, 2}, {1, 2}}, 8);
  EXPECT_EQ(tree.nodes.size(), 1U);
  EXPECT_EQ(tree.last, (std::vector<std::int32_t>{0, 0, 0}));
}

TEST(PrefixTree, ShortBeginningsAreNotShared) {
  const auto tree = build({{1, 2, 3}, {1, 2, 4}}, 3);
  EXPECT_EQ(tree.nodes.size(), 2U);
  EXPECT_EQ(total_tokens(tree), 6);
}

TEST(PrefixTree, RandomSequencesAreReproducedAndNeverCostMore) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Sequences sequences(1 + random() % 40);
    std::int64_t plain = 0;
    for (auto& sequence : sequences) {
      sequence.resize(random() % 12);
      for (auto& token : sequence) token = static_cast<std::int32_t>(random() % 2);
      plain += static_cast<std::int64_t>(sequence.size());
    }
    for (const std::int64_t min_shared : {1, 3, 8}) {
      const auto tree = build(sequences, min_shared);
      EXPECT_LE(total_tokens(tree), plain);
      std::vector<std::int32_t> children(tree.nodes.size(), 0);
      for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
        const auto parent = tree.nodes[i].parent;
        ASSERT_LT(parent, static_cast<std::int32_t>(i));
        if (parent >= 0) ++children[static_cast<std::size_t>(parent)];
      }
      for (std::size_t i = 0; i < tree.nodes.size(); ++i) EXPECT_EQ(children[i], tree.nodes[i].children);
      for (std::size_t s = 0; s < sequences.size(); ++s)
        ASSERT_EQ(path_tokens(tree, sequences, s), sequences[s]) << "round " << round;
    }
  }
}

TEST(PrefixTree, LongChainsOfPrefixesNeedNoDeepStack) {
  Sequences sequences;
  for (int length = 1; length <= 3000; ++length) sequences.emplace_back(static_cast<std::size_t>(length), 7);
  const auto tree = build(sequences, 1);
  EXPECT_EQ(total_tokens(tree), 3000);
}

}  // namespace
}  // namespace asynct
