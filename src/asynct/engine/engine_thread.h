#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "asynct/engine/engine.h"

namespace asynct {

/// Hears about one submission, on the engine's thread: must be quick, must not call the EngineThread but for
/// submit_more(), and should not throw: that fails all requests, or, when it is the end of one that it hears
/// of, is logged. `request` is an index into the submitted tree.
class SubmissionListener {
 public:
  virtual ~SubmissionListener() = default;
  /// The engine refuses the submission; nothing else follows.
  virtual void on_rejected(std::string_view error) = 0;
  virtual void on_scores(std::size_t request, std::size_t first, std::span<const TokenScore> scores) = 0;
  virtual void on_target_logprobs(std::size_t /*request*/, std::size_t /*target*/,
                                  std::span<const TokenLogprob> /*logprobs*/) {}
  /// False ends the request (FinishReason::stopped).
  virtual bool on_token(std::size_t request, Token token, std::span<const TokenLogprob> logprobs) = 0;
  virtual void on_end_token(std::size_t /*request*/, Token /*token*/,
                            std::span<const TokenLogprob> /*logprobs*/) {}
  /// Exactly once a request.
  virtual void on_finished(std::size_t request, FinishReason reason, std::string_view error) = 0;
};

/// A request, or a tree of them, and who hears of it.
struct Submission {
  std::vector<Request> tree;
  std::shared_ptr<SubmissionListener> listener;
};

/// What an engine does at the moment, for metrics and health.
struct EngineStatus {
  EngineCounters counters;
  std::int64_t tokens_generated = 0;
  std::int64_t queued = 0;  // submissions that have not reached the engine
  std::int32_t waiting = 0;
  std::int32_t running = 0;
  std::int32_t blocks = 0;
  std::int32_t free_blocks = 0;
  double forward_seconds = 0;  // in steps, sampling included
};

/// An Engine and the thread that owns it. Others hand it submissions and cancellations through a queue and
/// hear of them through listeners. All functions may be called from any thread.
class EngineThread {
 public:
  using Ticket = std::uint64_t;

  struct Options {
    EngineOptions engine;
    std::int64_t max_queue = 1024;  // submissions that wait for their start at most
  };

  /// `model` must outlive it. `after_step` is called on the engine's thread after each step that did
  /// something: the place to wake whoever sends results on.
  EngineThread(ModelRunner& model, const Options& options, std::function<void()> after_step = {});
  /// Cancels what is left.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  /// All of them, or none: empty when the queue has no room for all or the engine is shutting down; the
  /// listeners hear nothing then.
  std::optional<std::vector<Ticket>> submit(std::vector<Submission> submissions);
  std::optional<Ticket> submit(std::vector<Request> tree, std::shared_ptr<SubmissionListener> listener);
  /// For work that goes on with what has been taken: the queue may be full, and while the engine shuts down
  /// it is taken until the deadline. Empty after that. What a listener submits on the engine's thread all
  /// starts in the next step.
  std::optional<std::vector<Ticket>> submit_more(std::vector<Submission> submissions);
  /// Ends all requests of a submission within a step, or never starts them. Unknown and finished tickets are
  /// ignored.
  void cancel(Ticket ticket);

  /// False while any request is running.
  bool reset_prefix_cache();

  EngineStatus status() const;
  std::int64_t max_queue() const;

  /// Takes nothing more, lets what is there end until the deadline, cancels the rest, and returns when the
  /// engine is empty.
  void shut_down(std::chrono::milliseconds grace);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asynct
