#include "asynct/engine/request_trees.h"

#include <algorithm>
#include <cassert>

namespace asynct {
namespace {

using Tokens = std::span<const Token>;

// What goes through the model of a scored sequence, or stands before a prompt's last token.
Tokens without_last(const std::vector<Token>& tokens) { return Tokens(tokens).first(tokens.size() - 1); }

// Sorts the sequences of a prefix tree by the root they hang from.
void find_trees(const PrefixTree& prefixes, std::vector<std::int32_t>& roots,
                std::vector<std::vector<std::int32_t>>& members) {
  std::vector<std::int32_t> tree_of(prefixes.nodes.size());
  for (std::size_t node = 0; node < prefixes.nodes.size(); ++node) {
    const std::int32_t parent = prefixes.nodes[node].parent;
    if (parent < 0) roots.push_back(static_cast<std::int32_t>(node));
    tree_of[node] =
        parent < 0 ? static_cast<std::int32_t>(roots.size()) - 1 : tree_of[static_cast<std::size_t>(parent)];
  }
  members.resize(roots.size());
  for (std::size_t sequence = 0; sequence < prefixes.last.size(); ++sequence) {
    if (prefixes.last[sequence] < 0) {  // empty: a tree of its own, after those with roots
      members.push_back({static_cast<std::int32_t>(sequence)});
      continue;
    }
    const auto tree = tree_of[static_cast<std::size_t>(prefixes.last[sequence])];
    members[static_cast<std::size_t>(tree)].push_back(static_cast<std::int32_t>(sequence));
  }
}

// The nodes of one tree are neighbours: from its root to the next.
std::int32_t tree_end(const PrefixTree& prefixes, const std::vector<std::int32_t>& roots, std::size_t tree) {
  return tree + 1 < roots.size() ? roots[tree + 1] : static_cast<std::int32_t>(prefixes.nodes.size());
}

template <class SequenceOf>
std::vector<Request> prefix_requests(const PrefixTree& prefixes, std::int32_t begin, std::int32_t end,
                                     SequenceOf&& sequence_of) {
  std::vector<Request> tree;
  for (std::int32_t i = begin; i < end; ++i) {
    const auto& node = prefixes.nodes[static_cast<std::size_t>(i)];
    const Tokens tokens = sequence_of(node.sequence);
    tree.push_back({.parent = node.parent < 0 ? -1 : node.parent - begin,
                    .tokens = {tokens.begin() + node.begin, tokens.begin() + node.end}});
  }
  return tree;
}

}  // namespace

ScoreTrees::ScoreTrees(std::span<const ScoreRequest> requests) : requests_(requests) {
  std::vector<Tokens> inputs;
  inputs.reserve(requests.size());
  for (const ScoreRequest& request : requests) {
    assert(request.score_begin >= 1 &&
           request.score_begin < static_cast<std::int64_t>(request.tokens.size()));
    inputs.push_back(without_last(request.tokens));
  }
  prefixes_ = build_prefix_tree(inputs);
  find_trees(prefixes_, roots_, members_);
}

std::vector<Request> ScoreTrees::tree(std::size_t index,
                                      std::vector<std::vector<TargetOwner>>& owners) const {
  const std::int32_t begin = roots_[index];
  std::vector<Request> tree =
      prefix_requests(prefixes_, begin, tree_end(prefixes_, roots_, index), [&](std::int32_t sequence) {
        return without_last(requests_[static_cast<std::size_t>(sequence)].tokens);
      });

  struct Target {
    ScoreTarget target;
    TargetOwner owner;
  };
  std::vector<std::vector<Target>> targets(tree.size());
  for (const std::int32_t member : members_[index]) {
    const ScoreRequest& request = requests_[static_cast<std::size_t>(member)];
    // Token t is predicted by row t - 1, which lies in one of the nodes on the way up from the last.
    std::int32_t at = prefixes_.last[static_cast<std::size_t>(member)];
    for (auto t = static_cast<std::int64_t>(request.tokens.size()) - 1; t >= request.score_begin; --t) {
      while (prefixes_.nodes[static_cast<std::size_t>(at)].begin > t - 1)
        at = prefixes_.nodes[static_cast<std::size_t>(at)].parent;
      const auto row = static_cast<std::int32_t>(t - 1 - prefixes_.nodes[static_cast<std::size_t>(at)].begin);
      const Token token = request.tokens[static_cast<std::size_t>(t)];
      const auto position = static_cast<std::int32_t>(t - request.score_begin);
      targets[static_cast<std::size_t>(at - begin)].push_back(
          {{.row = row, .token = token}, {.index = member, .position = position, .token = token}});
    }
  }
  owners.assign(tree.size(), {});
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::stable_sort(targets[i].begin(), targets[i].end(),
                     [](const Target& a, const Target& b) { return a.target.row < b.target.row; });
    for (const Target& target : targets[i]) {
      tree[i].targets.push_back(target.target);
      owners[i].push_back(target.owner);
    }
  }
  return tree;
}

GenerateTrees::GenerateTrees(std::span<const GenerateRequest> requests, std::span<const Token> end_tokens)
    : requests_(requests), end_tokens_(end_tokens.begin(), end_tokens.end()) {
  std::vector<Tokens> prompts;
  prompts.reserve(requests.size());
  for (const GenerateRequest& request : requests) {
    assert(!request.prompt.empty());
    prompts.push_back(without_last(request.prompt));
  }
  prefixes_ = build_prefix_tree(prompts);
  find_trees(prefixes_, roots_, members_);
}

Request GenerateTrees::leaf(std::int32_t index, std::int32_t parent, std::vector<Token> tokens) const {
  return {.parent = parent,
          .tokens = std::move(tokens),
          .max_new_tokens = requests_[static_cast<std::size_t>(index)].max_new_tokens,
          .end_tokens = end_tokens_};
}

std::vector<Request> GenerateTrees::tree(std::size_t index, std::vector<std::int32_t>& owners) const {
  if (index >= roots_.size()) {  // a prompt of one token, on its own
    const std::int32_t member = members_[index].front();
    owners = {member};
    return {leaf(member, -1, requests_[static_cast<std::size_t>(member)].prompt)};
  }
  const std::int32_t begin = roots_[index];
  std::vector<Request> tree =
      prefix_requests(prefixes_, begin, tree_end(prefixes_, roots_, index), [&](std::int32_t sequence) {
        return without_last(requests_[static_cast<std::size_t>(sequence)].prompt);
      });
  owners.assign(tree.size(), -1);
  std::vector<std::int32_t> ending(tree.size(), 0);
  for (const std::int32_t member : members_[index]) ++ending[node_of(member, begin)];
  for (const std::int32_t member : members_[index]) {
    const std::size_t node = node_of(member, begin);
    const Token last = requests_[static_cast<std::size_t>(member)].prompt.back();
    if (ending[node] == 1 && prefixes_.nodes[node + static_cast<std::size_t>(begin)].children == 0) {
      // Nobody else's prefix: the node itself becomes the leaf.
      std::vector<Token> tokens = std::move(tree[node].tokens);
      tokens.push_back(last);
      tree[node] = leaf(member, tree[node].parent, std::move(tokens));
      owners[node] = member;
    } else {
      tree.push_back(leaf(member, static_cast<std::int32_t>(node), {last}));
      owners.push_back(member);
    }
  }
  return tree;
}

std::size_t GenerateTrees::node_of(std::int32_t member, std::int32_t begin) const {
  return static_cast<std::size_t>(prefixes_.last[static_cast<std::size_t>(member)] - begin);
}

}  // namespace asynct
