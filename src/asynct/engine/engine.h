#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "asynct/engine/engine_invariants.h"
#include "asynct/engine/engine_options.h"
#include "asynct/engine/model_runner.h"
#include "asynct/engine/node.h"
#include "asynct/engine/request.h"
#include "asynct/engine/scheduler.h"
#include "asynct/engine/step_builder.h"

namespace asynct {

/// Requests in, tokens and scores out; owns all sequences and blocks. One thread: submit, then step until
/// nothing is left. docs/engine.md is its contract.
///
/// step() = schedule, build the batch, forward, sample, publish.
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
  std::int32_t running_requests() const { return scheduler_.running(); }
  std::int32_t waiting_requests() const { return scheduler_.waiting(); }
  std::int64_t rows_processed() const { return counters().rows; }
  const EngineCounters& counters() const { return scheduler_.counters(); }
  const BlockPool& pool() const { return scheduler_.pool(); }
  const EngineOptions& options() const { return options_; }

  /// Forgets all cached prefixes; false, and nothing happens, while any request holds blocks.
  bool reset_prefix_cache() { return scheduler_.reset_cache(); }

  EngineSnapshot snapshot() const;
  /// Empty when all accounting adds up, else what does not. For tests.
  std::string check_invariants() const { return check(snapshot()); }

 private:
  std::vector<std::unique_ptr<Node>> make_nodes(std::vector<Request> tree);
  void build();
  void run_model();
  void choose_greedily();
  void draw_samples();
  static bool is_plain(const Work& work);
  void choose(Work& work, std::span<float> logits);
  void constrain(Node& node, std::span<float> logits);
  void allow(Node& node, bool ends);
  bool can_go_on(Node& node);
  void rank_targets();
  void publish(EngineListener& listener);
  void publish(Work& work, EngineListener& listener);
  void deliver_scores(const Work& work, std::span<const TokenScore> scores, EngineListener& listener);
  void deliver_token(const Work& work, EngineListener& listener);
  void finish(Node& node, FinishReason reason, EngineListener& listener);
  void fail_tree(Node& node, std::string_view error, EngineListener& listener);
  void remove_subtree(Node& top, bool keep, FinishReason reason, std::string_view error,
                      EngineListener& listener);

  ModelRunner& model_;
  EngineOptions options_;
  Scheduler scheduler_;
  RequestId next_id_ = 0;
  std::unordered_map<RequestId, std::unique_ptr<Node>> nodes_;

  // One step's working set; memory is kept.
  StepBuilder builder_;
  std::span<Work> work_;
  std::vector<ScoreTarget> targets_;
  std::vector<TokenScore> scores_;
  std::vector<Work*> choosing_;
  std::vector<std::int32_t> rows_;  // sample rows of choosing_
  std::vector<Token> chosen_;
  std::vector<float> logits_;           // of rows_
  std::vector<float> raw_logits_;       // of one row, before they are processed
  std::vector<std::uint32_t> allowed_;  // of one row, a bit a token; empty until a constraint comes
  std::vector<TokenLogprob> tops_;      // of targets_, one after another
  std::vector<std::size_t> top_ends_;   // [targets_] where each ends in tops_
  std::vector<TokenLogprob> node_tops_;
  TokenSampler sampler_;
};

}  // namespace asynct
