#include "asynct/engine/request_trees.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace asynct {
namespace {

std::vector<Token> random_tokens(std::mt19937& random, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 2);
  return tokens;
}

// Tokens before request `i` of a tree, its own included.
std::vector<Token> context(const std::vector<Request>& tree, std::size_t i) {
  std::vector<Token> tokens;
  if (tree[i].parent >= 0) tokens = context(tree, static_cast<std::size_t>(tree[i].parent));
  tokens.insert(tokens.end(), tree[i].tokens.begin(), tree[i].tokens.end());
  return tokens;
}

TEST(ScoreTrees, EveryScoredTokenIsATargetAfterItsOwnContext) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<ScoreRequest> requests(1 + random() % 30);
    for (auto& request : requests) {
      request.tokens = random_tokens(random, 2 + random() % 30);
      request.score_begin = 1 + static_cast<std::int64_t>(random() % (request.tokens.size() - 1));
    }
    std::map<std::pair<int, int>, int> seen;
    const ScoreTrees trees(requests);
    for (std::size_t t = 0; t < trees.count(); ++t) {
      std::vector<std::vector<TargetOwner>> owners;
      const auto tree = trees.tree(t, owners);
      EXPECT_EQ(tree[0].parent, -1);
      for (std::size_t i = 0; i < tree.size(); ++i) {
        EXPECT_EQ(tree[i].parent < 0, i == 0);
        ASSERT_EQ(tree[i].targets.size(), owners[i].size());
        const auto before = context(tree, i).size() - tree[i].tokens.size();
        for (std::size_t k = 0; k < owners[i].size(); ++k) {
          const auto& owner = owners[i][k];
          const auto& request = requests[static_cast<std::size_t>(owner.index)];
          const auto at = static_cast<std::size_t>(request.score_begin + owner.position);
          EXPECT_EQ(tree[i].targets[k].token, request.tokens[at]);
          EXPECT_EQ(owner.token, request.tokens[at]);
          auto path = context(tree, i);
          path.resize(before + static_cast<std::size_t>(tree[i].targets[k].row) + 1);
          EXPECT_EQ(path, std::vector<Token>(request.tokens.begin(),
                                             request.tokens.begin() + static_cast<long>(at)));
          ++seen[{owner.index, owner.position}];
        }
      }
    }
    std::size_t wanted = 0;
    for (const auto& request : requests)
      wanted += request.tokens.size() - static_cast<std::size_t>(request.score_begin);
    EXPECT_EQ(seen.size(), wanted);
    for (const auto& [key, count] : seen) EXPECT_EQ(count, 1);
  }
}

TEST(ScoreTrees, ChoicesOfOneTokenCostNoRowOfTheirOwn) {
  std::vector<ScoreRequest> requests;
  requests.reserve(4);
  for (Token choice = 0; choice < 4; ++choice)
    requests.push_back({.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, choice}, .score_begin = 9});
  const ScoreTrees trees(requests);
  ASSERT_EQ(trees.count(), 1U);
  std::vector<std::vector<TargetOwner>> owners;
  const auto tree = trees.tree(0, owners);
  ASSERT_EQ(tree.size(), 1U);
  EXPECT_EQ(tree[0].tokens.size(), 9U);
  EXPECT_EQ(tree[0].targets.size(), 4U);
}

TEST(GenerateTrees, EveryPromptHasOneGeneratingLeafAfterExactlyItsTokens) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<GenerateRequest> requests(1 + random() % 30);
    for (auto& request : requests) {
      request.prompt = random_tokens(random, 1 + random() % 30);
      request.max_new_tokens = static_cast<std::int64_t>(1 + random() % 5);
    }
    const std::vector<Token> ends = {7};
    std::map<std::int32_t, int> seen;
    const GenerateTrees trees(requests, ends);
    for (std::size_t t = 0; t < trees.count(); ++t) {
      std::vector<std::int32_t> owners;
      const auto tree = trees.tree(t, owners);
      ASSERT_EQ(owners.size(), tree.size());
      for (std::size_t i = 0; i < tree.size(); ++i) {
        EXPECT_EQ(tree[i].max_new_tokens > 0, owners[i] >= 0);
        EXPECT_FALSE(tree[i].tokens.empty());
        if (i > 0) {
          ASSERT_GE(tree[i].parent, 0);
          EXPECT_EQ(tree[static_cast<std::size_t>(tree[i].parent)].max_new_tokens, 0);
        }
        if (owners[i] < 0) continue;
        ++seen[owners[i]];
        EXPECT_EQ(context(tree, i), requests[static_cast<std::size_t>(owners[i])].prompt);
        EXPECT_EQ(tree[i].end_tokens, ends);
      }
    }
    EXPECT_EQ(seen.size(), requests.size());
  }
}

}  // namespace
}  // namespace asynct
