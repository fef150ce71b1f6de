#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "asynct/engine/model_runner.h"
#include "asynct/engine/request.h"
#include "asynct/engine/step_builder.h"
#include "asynct/kv/block_pool.h"

namespace asynct {

struct EngineOptions {
  std::int32_t blocks = 0;           // of the KV cache
  std::int32_t block_size = 16;      // tokens
  std::int64_t batch_tokens = 1024;  // rows a step, prefill and decode together
  std::int32_t max_sequences = 256;  // live at once; at most batch_tokens
};

/// The only owner of sequences and blocks. One thread: submit, then step until nothing is left.
///
/// step() = schedule, build the batch, forward, sample, publish. A step takes one row of every generating
/// sequence, then fills the token budget with prompts, cut into chunks where they do not fit. A request is
/// admitted only with room for all its tokens and for the longest chain of descendants below it, so running
/// out of blocks is impossible: there is no preemption, and no deadlock (docs/architecture.md, "admission").
class Engine {
 public:
  Engine(ModelRunner& model, const EngineOptions& options);
  ~Engine();

  /// A request, or a tree of requests: the first is the root, parents stand before their children. All or
  /// nothing: an Error (empty, longer than the context, more blocks than there are, bad parameters) takes
  /// none. Returns the first id; request i has id + i.
  RequestId submit(std::vector<Request> tree);

  /// Ends a request, and those that continue it. Unknown or finished ids are ignored. Takes effect at once.
  void cancel(RequestId id, EngineListener& listener);

  /// One step. Returns whether work remains. An exception from the model fails the requests of that step and
  /// no other.
  bool step(EngineListener& listener);

  bool idle() const { return nodes_.empty(); }
  std::size_t live_requests() const { return nodes_.size(); }
  std::int64_t rows_processed() const { return rows_processed_; }

  /// Empty when all accounting adds up, else what does not. For tests.
  std::string check_invariants() const;

 private:
  struct Node;
  struct Work {  // rows of one node in this step
    Node* node = nullptr;
    std::int64_t rows = 0;
    std::size_t target_begin = 0;  // of the node's targets
    std::size_t target_end = 0;
    std::int32_t sample_row = -1;  // hidden row to sample from, -1: none
    Token sampled = -1;            // from it; -1: its logits hold a NaN
  };

  void schedule();
  bool admit_next();
  bool try_start(Node& node);
  void build();
  void run_model();
  void choose_greedily();
  void draw_samples();
  void publish(EngineListener& listener);
  void deliver_token(const Work& work, EngineListener& listener);
  void finish(Node& node, FinishReason reason, std::string_view error, EngineListener& listener);
  void fail_waiting_children(Node& node, FinishReason reason, std::string_view error,
                             EngineListener& listener);
  void retire(Node& node);
  void give_claim_back(const Node& node);

  ModelRunner& model_;
  EngineOptions options_;
  BlockPool pool_;
  std::int32_t unclaimed_;  // blocks not promised to any live request
  RequestId next_id_ = 0;
  std::unordered_map<RequestId, std::unique_ptr<Node>> nodes_;
  std::deque<Node*> roots_;     // not started, in order of arrival
  std::vector<Node*> ready_;    // children whose parent is computed; a stack, so depth first
  std::vector<Node*> running_;  // started and not finished, in order of start

  // One step's working set; memory is kept.
  StepBuilder builder_;
  std::vector<Work> work_;
  std::vector<Work> longer_;  // work of more than one row, until it follows the rest
  std::vector<BlockCopy> copies_;
  std::vector<ScoreTarget> targets_;
  std::vector<TokenScore> scores_;
  std::vector<Work*> choosing_;
  std::vector<std::int32_t> rows_;  // sample rows of choosing_
  std::vector<Token> chosen_;
  std::vector<float> logits_;  // of rows_
  TokenSampler sampler_;
  std::int64_t rows_processed_ = 0;
};

}  // namespace asynct
