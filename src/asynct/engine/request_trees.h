#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/engine/language_model.h"
#include "asynct/engine/prefix_tree.h"
#include "asynct/engine/request.h"

namespace asynct {

/// Which scored token a target stands for: `token`, the `position`-th scored one of ScoreRequest `index`.
struct TargetOwner {
  std::int32_t index = 0;
  std::int32_t position = 0;
  Token token = 0;
};

/// Score requests as trees for Engine::submit, one tree a root, shared prefixes once.
class ScoreTrees {
 public:
  explicit ScoreTrees(std::span<const ScoreRequest> requests);

  std::size_t count() const { return roots_.size(); }
  /// The requests of tree `index`, and for each of them whose targets its targets are.
  std::vector<Request> tree(std::size_t index, std::vector<std::vector<TargetOwner>>& owners) const;

 private:
  std::span<const ScoreRequest> requests_;
  PrefixTree prefixes_;
  std::vector<std::int32_t> roots_;                 // node index of each root
  std::vector<std::vector<std::int32_t>> members_;  // requests of each tree
};

/// Prompts as trees: a node a shared prefix, a leaf a prompt; leaves generate.
class GenerateTrees {
 public:
  GenerateTrees(std::span<const GenerateRequest> requests, std::span<const Token> end_tokens);

  std::size_t count() const { return members_.size(); }
  /// owners[i]: the GenerateRequest that request i of the tree answers, -1 for a shared prefix.
  std::vector<Request> tree(std::size_t index, std::vector<std::int32_t>& owners) const;

 private:
  Request leaf(std::int32_t index, std::int32_t parent, std::vector<Token> tokens) const;
  std::size_t node_of(std::int32_t member,
                      std::int32_t begin) const;  // in the tree that begins at node `begin`

  std::span<const GenerateRequest> requests_;
  std::vector<Token> end_tokens_;
  PrefixTree prefixes_;  // over prompts without their last token, which always belongs to the leaf
  std::vector<std::int32_t> roots_;
  std::vector<std::vector<std::int32_t>> members_;
};

}  // namespace asynct
