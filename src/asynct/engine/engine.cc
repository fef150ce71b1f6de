#include "asynct/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <limits>
#include <stdexcept>

#include "asynct/base/error.h"

namespace asynct {
namespace {

// Logits drawn from at a time, 16 MiB of them: those of the whole step, or enough rows to pay for reading the
// head.
constexpr std::size_t kMaxLogits = std::size_t{1} << 22;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

constexpr std::string_view kNanLogits =
    "the model's logits hold a NaN (`asynct inspect --check` finds it where it is in the weights)";

constexpr std::string_view kNoToken =
    "no token is allowed: the request's parameters ban them all (allowed_token_ids without bad_words, and "
    "without end tokens before min_tokens)";

std::string none_allowed(const Node& node) {
  if (node.constraint == nullptr) return std::string(kNoToken);
  return cat("the request's constraint leaves no token to choose from: ", node.constraint->error());
}

EngineOptions checked(EngineOptions options) {
  if (options.batch_tokens < 1) fail("batch tokens: ", options.batch_tokens, ", expected at least 1");
  if (options.max_sequences < 1) fail("sequences a step: ", options.max_sequences, ", expected at least 1");
  if (options.prefill_chunk < 0) fail("prefill chunk: ", options.prefill_chunk, ", expected 0 or more");
  if (options.blocks < 1 || options.block_size < 1)
    fail("KV cache: ", options.blocks, " blocks of ", options.block_size,
         " tokens, expected at least one of each");
  options.max_sequences =
      static_cast<std::int32_t>(std::min<std::int64_t>(options.max_sequences, options.batch_tokens));
  return options;
}

}  // namespace

Engine::Engine(ModelRunner& model, const EngineOptions& options)
    : model_(model), options_(checked(options)), scheduler_(options_) {}

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
  validate(request.sampling, vocabulary);
  for (const std::int32_t count : {request.logprobs, request.target_logprobs})
    if (count < -1 || count > kMaxTopLogprobs)
      fail("request: ", count, " log-probabilities a token, expected at most ", kMaxTopLogprobs);
  if ((index == 0) != (request.parent < 0) || request.parent >= static_cast<std::int32_t>(index))
    fail("request ", index, " of a tree: parent ", request.parent, " does not stand before it");
}

}  // namespace

std::vector<std::unique_ptr<Node>> Engine::make_nodes(std::vector<Request> tree) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    Request& request = tree[i];
    check_request(request, i, model_.vocabulary());
    Node* const parent = i > 0 ? nodes[static_cast<std::size_t>(request.parent)].get() : nullptr;
    auto node = std::make_unique<Node>(scheduler_.pool(), options_.block_size);
    if (parent != nullptr) {
      if (parent->request.max_new_tokens > 0) fail("request: a request that generates cannot be continued");
      node->begin = parent->end();
      node->parent = parent;
      parent->children.push_back(node.get());
      request.priority = nodes[0]->request.priority;
    }
    const std::int64_t prompt_end = node->begin + static_cast<std::int64_t>(request.tokens.size());
    if (prompt_end + request.max_new_tokens > model_.max_length())
      fail("request: ", prompt_end, " prompt tokens + ", request.max_new_tokens,
           " to generate exceed the context of ", model_.max_length());
    node->tokens = request.tokens;
    node->request = std::move(request);
    if (node->request.max_new_tokens > 0 && processes_logits(node->request.sampling)) {
      std::vector<Token> prompt;
      copy_tokens(*node, 0, node->end(), prompt);
      node->processor.emplace(node->request.sampling, prompt, node->request.end_tokens);
      if (!node->processor->allows_any(model_.vocabulary())) throw Error(std::string(kNoToken));
    }
    if (node->request.max_new_tokens > 0 && node->request.constraint != nullptr)
      node->constraint = node->request.constraint->start();
    nodes.push_back(std::move(node));
  }
  return nodes;
}

RequestId Engine::submit(std::vector<Request> tree) {
  if (tree.empty()) fail("request: nothing submitted");
  std::vector<std::unique_ptr<Node>> nodes = make_nodes(std::move(tree));
  const std::int64_t size = options_.block_size;
  // Blocks of the longest chain from each node, when all is generated.
  std::vector<std::int32_t> chain(nodes.size(), 0);
  for (std::size_t i = nodes.size(); i-- > 0;) {
    Node& node = *nodes[i];
    chain[i] += blocks_between(node.begin, node.end() + node.request.max_new_tokens, size);
    if (node.parent == nullptr) continue;
    const auto parent = static_cast<std::size_t>(node.request.parent);
    chain[parent] = std::max(chain[parent], chain[i]);
    node.parent->below =
        std::max(node.parent->below, blocks_between(node.begin, node.end(), size) + node.below);
  }
  if (chain[0] > options_.blocks)
    fail("request: needs ", chain[0], " KV blocks of ", options_.block_size, " tokens, the cache has ",
         options_.blocks, "; give it more (--kv-memory)");
  const RequestId first = next_id_;
  Node& root = *nodes[0];
  for (auto& node : nodes) {
    node->id = next_id_++;
    nodes_.emplace(node->id, std::move(node));
  }
  scheduler_.add(root);
  return first;
}

bool Engine::step(EngineListener& listener) {
  work_ = scheduler_.schedule();
  if (work_.empty()) {
    if (!nodes_.empty()) throw std::logic_error("the engine has requests and finds nothing to do");
    return false;
  }
  std::string error;
  try {
    build();
    run_model();
  } catch (const std::exception& exception) {
    error = exception.what();
    if (error.empty()) error = "forward pass";
  }
  scheduler_.release_copied();
  if (error.empty()) {
    publish(listener);
  } else {
    for (const Work& work : work_) fail_tree(*work.node, error, listener);
  }
  return !nodes_.empty();
}

void Engine::build() {
  builder_.clear();
  targets_.clear();
  for (Work& work : work_) {
    Node& node = *work.node;
    work.target_begin = work.target_end = node.next_target;
    if (work.rows == 0) continue;
    const auto tokens =
        std::span(node.tokens)
            .subspan(static_cast<std::size_t>(work.first_row), static_cast<std::size_t>(work.rows));
    const std::int32_t first =
        builder_.add(node.sequence, node.begin + work.first_row, tokens, node.begin + node.written);
    const auto& targets = node.request.targets;
    while (node.next_target < targets.size() && targets[node.next_target].row < node.next_row) {
      const auto& target = targets[node.next_target++];
      const auto offset = static_cast<std::int32_t>(target.row - work.first_row);
      targets_.push_back({.row = builder_.want(first + offset), .token = target.token});
    }
    work.target_end = node.next_target;
    if (node.request.max_new_tokens > 0 && node.rows_left() == 0)
      work.sample_row = builder_.want(first + static_cast<std::int32_t>(work.rows) - 1);
  }
}

void Engine::run_model() {
  if (builder_.rows() == 0) return;
  if (!scheduler_.copies().empty()) model_.copy_blocks(scheduler_.copies());
  model_.forward(builder_.batch(scheduler_.most_blocks()));
  scores_.resize(targets_.size());
  if (!targets_.empty()) model_.score(targets_, scores_);
  rank_targets();
  choose_greedily();
  draw_samples();
}

// Whether the head's own argmax is all that is needed of a row.
bool Engine::is_plain(const Work& work) {
  const Node& node = *work.node;
  return node.request.sampling.temperature == 0 && node.request.logprobs < 0 && node.constraint == nullptr &&
         (!node.processor || !node.processor->changes_logits());
}

void Engine::choose_greedily() {
  choosing_.clear();
  rows_.clear();
  for (Work& work : work_) {
    if (work.sample_row < 0 || !is_plain(work)) continue;
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
      if (work.sample_row < 0 || is_plain(work)) continue;
      choosing_.push_back(&work);
      rows_.push_back(work.sample_row);
    }
    if (rows_.empty()) return;
    logits_.resize(rows_.size() * vocabulary);
    model_.logits(rows_, logits_);
    for (std::size_t i = 0; i < rows_.size(); ++i)
      choose(*choosing_[i], std::span(logits_).subspan(i * vocabulary, vocabulary));
  }
}

void Engine::choose(Work& work, std::span<float> logits) {
  Node& node = *work.node;
  const bool processed = node.processor && node.processor->changes_logits();
  const bool changed = processed || node.constraint != nullptr;
  std::span<const float> raw = logits;
  if (changed && node.request.logprobs >= 0) raw = raw_logits_ = {logits.begin(), logits.end()};
  if (processed) node.processor->apply(logits);
  if (node.constraint != nullptr) constrain(node, logits);
  const SamplingParams& sampling = node.request.sampling;
  work.sampled = sampling.temperature == 0
                     ? argmax(logits)
                     : sampler_.sample(logits, sampling, static_cast<std::uint64_t>(node.generated()));
  if (work.sampled < 0 && changed &&
      std::all_of(logits.begin(), logits.end(), [](float logit) { return logit == kBanned; }))
    work.sampled = kNoneAllowed;
  if (work.sampled >= 0 && node.request.logprobs >= 0 &&
      !top_logprobs(raw, node.request.logprobs, work.sampled, node.logprobs))
    work.sampled = -1;
}

// Fills in what the request's constraint allows next. Tokens that end the text are never part of it: they
// come where it is complete, if `ends`, whatever the constraint makes of their bytes.
void Engine::allow(Node& node, bool ends) {
  const auto vocabulary = static_cast<std::size_t>(model_.vocabulary());
  allowed_.resize((vocabulary + 31) / 32);
  node.constraint->fill(allowed_);
  ends = ends && node.constraint->complete();
  for (const Token token : node.request.end_tokens) {
    const auto id = static_cast<std::size_t>(token);
    if (id >= vocabulary) continue;
    const std::uint32_t bit = std::uint32_t{1} << (id % 32);
    allowed_[id / 32] = ends ? allowed_[id / 32] | bit : allowed_[id / 32] & ~bit;
  }
}

// Bans what the request's constraint does not allow next.
void Engine::constrain(Node& node, std::span<float> logits) {
  allow(node, true);
  for (std::size_t begin = 0; begin < logits.size(); begin += 32) {
    const std::uint32_t word = allowed_[begin / 32];
    if (word == ~std::uint32_t{0}) continue;
    const std::size_t end = std::min(begin + 32, logits.size());
    for (std::size_t i = begin; i < end; ++i)
      if ((word >> (i - begin) & 1U) == 0) logits[i] = kBanned;
  }
}

// After a token was accepted: whether more may follow than the end. False also when the constraint failed.
bool Engine::can_go_on(Node& node) {
  if (!node.constraint->complete()) return true;
  allow(node, false);
  return std::any_of(allowed_.begin(), allowed_.end(), [](std::uint32_t word) { return word != 0; });
}

// For requests that want more about a target than TokenScore says.
void Engine::rank_targets() {
  top_ends_.assign(targets_.size(), 0);
  tops_.clear();
  const auto vocabulary = static_cast<std::size_t>(model_.vocabulary());
  std::size_t index = 0;
  for (const Work& work : work_) {
    const std::int32_t count = work.node->request.target_logprobs;
    for (std::size_t t = work.target_begin; t < work.target_end; ++t, ++index) {
      if (count > 1) {
        logits_.resize(vocabulary);
        model_.logits({&targets_[index].row, 1}, logits_);
        if (top_logprobs(logits_, count, targets_[index].token, node_tops_))
          tops_.insert(tops_.end(), node_tops_.begin(), node_tops_.end());
      }
      top_ends_[index] = tops_.size();
    }
  }
}

void Engine::publish(EngineListener& listener) {
  std::size_t score = 0;
  for (Work& work : work_) {
    const std::size_t count = work.target_end - work.target_begin;
    work.first_score = score;
    score += count;
    publish(work, listener);
  }
}

void Engine::publish(Work& work, EngineListener& listener) {
  Node& node = *work.node;
  const auto scores = std::span(scores_).subspan(work.first_score, work.target_end - work.target_begin);
  const bool bad =
      std::any_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.argmax < 0; });
  if (work.sample_row >= 0 && work.sampled == kNoneAllowed && !bad)
    return remove_subtree(node, true, FinishReason::stuck, none_allowed(node), listener);
  if (bad || (work.sample_row >= 0 && work.sampled < 0)) return fail_tree(node, kNanLogits, listener);
  scheduler_.commit(work);
  deliver_scores(work, scores, listener);
  if (work.sample_row >= 0) {
    deliver_token(work, listener);
  } else if (node.rows_left() == 0) {
    finish(node, FinishReason::prompt, listener);
  }
}

void Engine::deliver_scores(const Work& work, std::span<const TokenScore> scores, EngineListener& listener) {
  Node& node = *work.node;
  if (!node.recalled.empty()) {
    listener.on_scores(node.id, work.target_begin - node.recalled.size(), node.recalled);
    node.recalled.clear();
  }
  if (scores.empty()) return;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::size_t index = work.first_score + i;
    const std::size_t begin = index > 0 ? top_ends_[index - 1] : 0;
    if (top_ends_[index] > begin)
      listener.on_target_logprobs(node.id, work.target_begin + i,
                                  std::span(tops_).subspan(begin, top_ends_[index] - begin));
    scheduler_.remember(node, node.request.targets[work.target_begin + i], scores[i]);
  }
  listener.on_scores(node.id, work.target_begin, scores);
}

void Engine::deliver_token(const Work& work, EngineListener& listener) {
  Node& node = *work.node;
  const Token token = work.sampled;
  const auto& ends = node.request.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    listener.on_end_token(node.id, token, node.logprobs);
    finish(node, FinishReason::end_token, listener);
    return;
  }
  if (node.constraint != nullptr && !node.constraint->accept(token))
    return remove_subtree(node, true, FinishReason::stuck, none_allowed(node), listener);
  node.tokens.push_back(token);
  if (node.processor) node.processor->accept(token);
  const bool more = listener.on_token(node.id, token, node.logprobs);
  if (!more || (node.constraint != nullptr && !can_go_on(node))) {
    // Nobody knows whether the text would have ended here.
    if (more && node.constraint->failed())
      return remove_subtree(node, true, FinishReason::stuck, none_allowed(node), listener);
    finish(node, FinishReason::stopped, listener);
  } else if (node.generated() == node.request.max_new_tokens) {
    finish(node, FinishReason::length, listener);
  }
}

void Engine::finish(Node& node, FinishReason reason, EngineListener& listener) {
  if (!std::exchange(node.reported, true)) listener.on_finished(node.id, reason, {});
  if (node.children.empty()) {
    remove_subtree(node, true, reason, {}, listener);
  } else {
    scheduler_.finish(node);
  }
}

void Engine::fail_tree(Node& node, std::string_view error, EngineListener& listener) {
  remove_subtree(node, false, FinishReason::failed, error, listener);
}

void Engine::cancel(RequestId id, EngineListener& listener) {
  const auto found = nodes_.find(id);
  if (found != nodes_.end()) remove_subtree(*found->second, true, FinishReason::cancelled, {}, listener);
}

void Engine::remove_subtree(Node& top, bool keep, FinishReason reason, std::string_view error,
                            EngineListener& listener) {
  Node* parent = top.parent;
  std::vector<Node*> subtree{&top};
  for (std::size_t i = 0; i < subtree.size(); ++i)
    subtree.insert(subtree.end(), subtree[i]->children.begin(), subtree[i]->children.end());
  for (std::size_t i = subtree.size(); i-- > 0;) {  // children before parents
    Node* const node = subtree[i];
    if (!node->reported) listener.on_finished(node->id, reason, error);
    scheduler_.leave(*node, keep);
    nodes_.erase(node->id);
  }
  // A parent goes once its children have gone, and so on up.
  while (parent != nullptr && parent->state == Node::State::holding && parent->children.empty()) {
    Node* const node = std::exchange(parent, parent->parent);
    scheduler_.leave(*node, true);
    nodes_.erase(node->id);
  }
}

EngineSnapshot Engine::snapshot() const {
  EngineSnapshot snapshot;
  scheduler_.describe(snapshot);
  for (const auto& [id, node] : nodes_) {
    snapshot.members.push_back({.id = id,
                                .parent = node->parent != nullptr ? node->parent->id : -1,
                                .priority = node->request.priority,
                                .state = node->state,
                                .begin = node->begin,
                                .tokens = static_cast<std::int64_t>(node->tokens.size()),
                                .next_row = node->next_row,
                                .length = node->sequence.length(),
                                .blocks = {node->sequence.blocks().begin(), node->sequence.blocks().end()},
                                .cached_blocks = node->cached_blocks,
                                .promise = node->promise,
                                .lent = node->lent,
                                .borrowed = node->borrowed,
                                .children = node->children.size()});
    if (node->awaited) snapshot.members.back().awaits = node->awaited->source;
  }
  return snapshot;
}

}  // namespace asynct
