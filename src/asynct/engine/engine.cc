#include "asynct/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <exception>

#include "asynct/base/error.h"
#include "asynct/engine/node.h"

namespace asynct {
namespace {

// Logits drawn from at a time, 16 MiB of them: those of the whole step, or enough rows to pay for reading the
// head.
constexpr std::size_t kMaxLogits = std::size_t{1} << 22;

constexpr std::string_view kNanLogits =
    "the model's logits hold a NaN (`asynct inspect --check` finds it where it is in the weights)";

}  // namespace

Engine::Engine(ModelRunner& model, const EngineOptions& options)
    : model_(model), options_(options), pool_(options.blocks), unclaimed_(options.blocks) {
  if (options.batch_tokens < 1) fail("batch tokens: ", options.batch_tokens, ", expected at least 1");
  if (options.max_sequences < 1) fail("sequences a step: ", options.max_sequences, ", expected at least 1");
  if (options.blocks < 1 || options.block_size < 1)
    fail("KV cache: ", options.blocks, " blocks of ", options.block_size,
         " tokens, expected at least one of each");
  options_.max_sequences =
      static_cast<std::int32_t>(std::min<std::int64_t>(options.max_sequences, options.batch_tokens));
}

Engine::~Engine() = default;

namespace {

void check_request(const Request& request, std::size_t index, std::int64_t vocabulary) {
  if (request.tokens.empty()) fail("request: no tokens; a prompt needs at least one");
  const auto check_token = [&](Token token, std::string_view what) {
    if (token < 0 || token >= vocabulary)
      fail("request: ", what, " ", token, " is not in the vocabulary of ", vocabulary);
  };
  for (const Token token : request.tokens) check_token(token, "token");
  std::int32_t row = 0;
  for (const ScoreTarget& target : request.targets) {
    check_token(target.token, "target");
    if (target.row < row || target.row >= static_cast<std::int64_t>(request.tokens.size()))
      fail("request: target row ", target.row, " is out of order or beyond the ", request.tokens.size(),
           " tokens");
    row = target.row;
  }
  constexpr std::int64_t kMostNewTokens = std::int64_t{1} << 40;  // keeps sums of lengths far from overflow
  if (request.max_new_tokens < 0 || request.max_new_tokens > kMostNewTokens)
    fail("request: max_new_tokens is ", request.max_new_tokens, ", expected 0 to ", kMostNewTokens);
  validate(request.sampling);
  if ((index == 0) != (request.parent < 0) || request.parent >= static_cast<std::int32_t>(index))
    fail("request ", index, " of a tree: parent ", request.parent, " does not stand before it");
}

}  // namespace

RequestId Engine::submit(std::vector<Request> tree) {
  if (tree.empty()) fail("request: nothing submitted");
  std::vector<std::int64_t> prefix(tree.size(), 0);  // tokens before each request
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    Request& request = tree[i];
    check_request(request, i, model_.vocabulary());
    const auto parent = static_cast<std::size_t>(std::max(request.parent, 0));
    if (i > 0) {
      if (nodes[parent]->request.max_new_tokens > 0)
        fail("request: a request that generates cannot be continued");
      prefix[i] = prefix[parent] + static_cast<std::int64_t>(nodes[parent]->request.tokens.size());
    }
    const std::int64_t end =
        prefix[i] + static_cast<std::int64_t>(request.tokens.size()) + request.max_new_tokens;
    if (end > model_.max_length())
      fail("request: ", end - request.max_new_tokens, " prompt tokens + ", request.max_new_tokens,
           " to generate exceed the context of ", model_.max_length());
    auto node = std::make_unique<Node>(pool_, options_.block_size);
    const std::int64_t size = options_.block_size;
    node->own_blocks = static_cast<std::int32_t>((end + size - 1) / size - prefix[i] / size);
    node->chain_blocks = node->own_blocks;
    node->tokens = request.tokens;
    node->request = std::move(request);
    if (i > 0) {
      node->parent = nodes[parent].get();
      nodes[parent]->children.push_back(node.get());
    }
    nodes.push_back(std::move(node));
  }
  for (std::size_t i = nodes.size(); i-- > 0;) {
    Node& node = *nodes[i];
    node.unstarted_children = node.unretired_children = node.children.size();
    if (node.parent != nullptr)
      node.parent->chain_blocks =
          std::max(node.parent->chain_blocks, node.parent->own_blocks + node.chain_blocks);
  }
  if (nodes[0]->chain_blocks > options_.blocks)
    fail("request: needs ", nodes[0]->chain_blocks, " KV blocks of ", options_.block_size,
         " tokens, the cache has ", options_.blocks, "; give it more (--kv-memory)");
  const RequestId first = next_id_;
  roots_.push_back(nodes[0].get());
  for (auto& node : nodes) {
    node->id = next_id_++;
    nodes_.emplace(node->id, std::move(node));
  }
  return first;
}

bool Engine::step(EngineListener& listener) {
  schedule();
  if (work_.empty()) {
    assert(nodes_.empty());
    return false;
  }
  build();
  std::string error;
  try {
    run_model();
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  if (error.empty()) {
    publish(listener);
  } else {
    for (const Work& work : work_) finish(*work.node, FinishReason::failed, error, listener);
  }
  std::erase_if(running_, [](const Node* node) { return node->finished; });
  for (const Work& work : work_)
    if (work.node->finished) retire(*work.node);
  return !nodes_.empty();
}

void Engine::schedule() {
  work_.clear();
  longer_.clear();
  std::int64_t budget = options_.batch_tokens;
  const auto take = [&](Node* node, std::int64_t rows) {
    (rows == 1 ? work_ : longer_).push_back({.node = node, .rows = rows});
    budget -= rows;
  };
  for (Node* node : running_)
    if (node->generating()) take(node, 1);
  for (Node* node : running_)
    if (!node->generating() && budget > 0)
      take(node, std::min(budget, static_cast<std::int64_t>(node->tokens.size()) - node->computed));
  while (budget > 0 && admit_next()) {
    Node* node = running_.back();
    take(node, std::min(budget, static_cast<std::int64_t>(node->tokens.size())));
  }
  // One-row sequences first: the attention kernels count on it.
  work_.insert(work_.end(), longer_.begin(), longer_.end());
}

bool Engine::admit_next() {
  if (static_cast<std::int32_t>(running_.size()) >= options_.max_sequences) return false;
  if (!ready_.empty()) {
    // When the top cannot start, its parent's claim is lent to a sibling whose work goes on above it.
    if (!try_start(*ready_.back())) return false;
    ready_.pop_back();
    return true;
  }
  if (roots_.empty() || !try_start(*roots_.front())) return false;
  roots_.pop_front();
  return true;
}

bool Engine::try_start(Node& node) {
  if (node.parent != nullptr && !node.parent->lent) {
    node.parent->lent = true;
    node.borrowed = true;
  } else if (node.chain_blocks <= unclaimed_) {
    unclaimed_ -= node.chain_blocks;
  } else {
    return false;
  }
  if (node.parent != nullptr) {
    node.sequence = node.parent->sequence.fork();
    if (--node.parent->unstarted_children == 0) node.parent->sequence.clear();
  }
  // All that it will hold, so that no later step allocates.
  node.sequence.reserve(static_cast<std::int64_t>(node.tokens.size()) + node.request.max_new_tokens);
  node.tokens.reserve(node.tokens.size() + static_cast<std::size_t>(node.request.max_new_tokens));
  node.started = true;
  running_.push_back(&node);
  return true;
}

void Engine::build() {
  builder_.clear();
  copies_.clear();
  targets_.clear();
  for (Work& work : work_) {
    Node& node = *work.node;
    if (const auto copy = node.sequence.extend(work.rows)) copies_.push_back(*copy);
    const auto begin = static_cast<std::size_t>(node.computed);
    const std::int32_t first = builder_.add(
        node.sequence, std::span(node.tokens).subspan(begin, static_cast<std::size_t>(work.rows)));
    node.computed += work.rows;
    work.target_begin = node.next_target;
    const auto& targets = node.request.targets;
    while (node.next_target < targets.size() && targets[node.next_target].row < node.computed) {
      const auto& target = targets[node.next_target++];
      const auto offset = static_cast<std::int32_t>(target.row - static_cast<std::int64_t>(begin));
      targets_.push_back({.row = builder_.want(first + offset), .token = target.token});
    }
    work.target_end = node.next_target;
    if (node.request.max_new_tokens > 0 && node.computed == static_cast<std::int64_t>(node.tokens.size()))
      work.sample_row = builder_.want(first + static_cast<std::int32_t>(work.rows) - 1);
  }
  rows_processed_ += builder_.rows();
}

void Engine::run_model() {
  if (!copies_.empty()) model_.copy_blocks(copies_);
  const StepBatch batch = builder_.batch();
  model_.forward(batch);
  scores_.resize(targets_.size());
  if (!targets_.empty()) model_.score(targets_, scores_);
  choose_greedily();
  draw_samples();
}

void Engine::choose_greedily() {
  choosing_.clear();
  rows_.clear();
  for (Work& work : work_) {
    if (work.sample_row < 0 || work.node->request.sampling.temperature > 0) continue;
    choosing_.push_back(&work);
    rows_.push_back(work.sample_row);
  }
  if (rows_.empty()) return;
  chosen_.resize(rows_.size());
  model_.greedy(rows_, chosen_);
  for (std::size_t i = 0; i < rows_.size(); ++i) choosing_[i]->sampled = chosen_[i];
}

void Engine::draw_samples() {
  const auto vocabulary = static_cast<std::size_t>(model_.vocabulary());
  const std::size_t most = std::max<std::size_t>(1, kMaxLogits / vocabulary);
  for (std::size_t next = 0; next < work_.size();) {
    choosing_.clear();
    rows_.clear();
    for (; next < work_.size() && rows_.size() < most; ++next) {
      Work& work = work_[next];
      if (work.sample_row < 0 || work.node->request.sampling.temperature == 0) continue;
      choosing_.push_back(&work);
      rows_.push_back(work.sample_row);
    }
    if (rows_.empty()) return;
    logits_.resize(rows_.size() * vocabulary);
    model_.logits(rows_, logits_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Node& node = *choosing_[i]->node;
      choosing_[i]->sampled =
          sampler_.sample(std::span(logits_).subspan(i * vocabulary, vocabulary), node.request.sampling,
                          static_cast<std::uint64_t>(node.generated()));
    }
  }
}

void Engine::publish(EngineListener& listener) {
  std::size_t score = 0;
  for (Work& work : work_) {
    Node& node = *work.node;
    const std::size_t count = work.target_end - work.target_begin;
    const auto scores = std::span(scores_).subspan(score, count);
    score += count;
    const bool bad =
        std::any_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.argmax < 0; });
    if (bad) {
      finish(node, FinishReason::failed, kNanLogits, listener);
      continue;
    }
    if (count > 0) listener.on_scores(node.id, work.target_begin, scores);
    if (work.sample_row >= 0) {
      deliver_token(work, listener);
    } else if (node.computed == static_cast<std::int64_t>(node.tokens.size())) {
      finish(node, FinishReason::prompt, {}, listener);
    }
  }
}

void Engine::deliver_token(const Work& work, EngineListener& listener) {
  Node& node = *work.node;
  const Token token = work.sampled;
  const auto& ends = node.request.end_tokens;
  if (token < 0) {
    finish(node, FinishReason::failed, kNanLogits, listener);
  } else if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    finish(node, FinishReason::end_token, {}, listener);
  } else if (node.tokens.push_back(token); !listener.on_token(node.id, token)) {
    finish(node, FinishReason::stopped, {}, listener);
  } else if (node.generated() == node.request.max_new_tokens) {
    finish(node, FinishReason::length, {}, listener);
  }
}

void Engine::finish(Node& node, FinishReason reason, std::string_view error, EngineListener& listener) {
  node.finished = true;
  listener.on_finished(node.id, reason, error);
  if (node.children.empty()) {
    node.sequence.clear();
  } else if (reason == FinishReason::prompt) {
    ready_.insert(ready_.end(), node.children.rbegin(), node.children.rend());  // the first child on top
  } else {
    fail_waiting_children(node, reason, error, listener);
    node.sequence.clear();
  }
}

void Engine::fail_waiting_children(Node& node, FinishReason reason, std::string_view error,
                                   EngineListener& listener) {
  std::vector<Node*> doomed(node.children.begin(), node.children.end());
  node.children.clear();
  node.unstarted_children = node.unretired_children = 0;
  while (!doomed.empty()) {
    Node* child = doomed.back();
    doomed.pop_back();
    doomed.insert(doomed.end(), child->children.begin(), child->children.end());
    listener.on_finished(child->id, reason, error);
    nodes_.erase(child->id);
  }
}

void Engine::retire(Node& finished) {
  // A node goes once its children have gone; then perhaps its parent, and so on up.
  Node* node = &finished;
  while (node != nullptr && node->finished && node->unretired_children == 0) {
    Node* const parent = node->parent;
    give_claim_back(*node);
    if (parent != nullptr) {
      std::erase(parent->children, node);
      --parent->unretired_children;
    }
    nodes_.erase(node->id);
    node = parent;
  }
}

void Engine::cancel(RequestId id, EngineListener& listener) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  Node* const top = found->second.get();
  Node* const parent = top->parent;
  if (parent != nullptr) {
    std::erase(parent->children, top);
    --parent->unretired_children;
    // A parent that is still being computed needs its blocks for itself.
    if (!top->started && --parent->unstarted_children == 0 && parent->finished) parent->sequence.clear();
  }
  std::vector<Node*> subtree{top};
  for (std::size_t i = 0; i < subtree.size(); ++i)
    subtree.insert(subtree.end(), subtree[i]->children.begin(), subtree[i]->children.end());
  for (std::size_t i = subtree.size(); i-- > 0;) {  // children before parents
    Node* const node = subtree[i];
    std::erase(roots_, node);
    std::erase(ready_, node);
    std::erase(running_, node);
    if (!node->finished) listener.on_finished(node->id, FinishReason::cancelled, {});
    if (node->started) give_claim_back(*node);
    nodes_.erase(node->id);
  }
  if (parent != nullptr) retire(*parent);
}

void Engine::give_claim_back(const Node& node) {
  if (node.borrowed) {
    node.parent->lent = false;
  } else {
    unclaimed_ += node.chain_blocks;
  }
}

std::string Engine::check_invariants() const {
  std::vector<std::int32_t> references(static_cast<std::size_t>(pool_.size()), 0);
  std::int64_t claimed = 0;
  for (const auto& [id, node] : nodes_) {
    for (const std::int32_t block : node->sequence.blocks()) ++references[static_cast<std::size_t>(block)];
    if (node->started && !node->borrowed) claimed += node->chain_blocks;
    if (node->started && !node->finished &&
        std::find(running_.begin(), running_.end(), node.get()) == running_.end())
      return cat("request ", id, " is started but not running");
    if (node->borrowed && !node->parent->lent) return cat("request ", id, " borrows what is not lent");
  }
  std::int32_t used = 0;
  for (std::int32_t block = 0; block < pool_.size(); ++block) {
    const auto held = references[static_cast<std::size_t>(block)];
    if (held != pool_.references(block))
      return cat("block ", block, " has ", pool_.references(block), " references, ", held, " are held");
    used += held > 0 ? 1 : 0;
  }
  if (used + pool_.free_blocks() != pool_.size())
    return cat(used, " blocks used, ", pool_.free_blocks(), " free");
  if (claimed + unclaimed_ != pool_.size())
    return cat(claimed, " blocks claimed, ", unclaimed_, " unclaimed");
  if (used > claimed) return cat(used, " blocks used, only ", claimed, " claimed");
  return {};
}

}  // namespace asynct
