#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/engine/logprobs.h"
#include "asynct/engine/sampling.h"
#include "asynct/ops/head/head.h"
#include "asynct/text/token.h"
#include "asynct/text/token_constraint.h"

namespace asynct {

using RequestId = std::int64_t;

/// Tokens to run through the model and what is wanted of them. A request may continue another one of the same
/// submission: its context then is the parent's tokens, computed once for all children.
struct Request {
  std::int32_t parent = -1;   // index in the submission, -1: none
  std::vector<Token> tokens;  // follow the parent's; not empty

  /// Log-probabilities wanted: .row is an index into `tokens`, .token what comes after it. Ascending by row.
  std::vector<ScoreTarget> targets;
  std::int32_t target_logprobs = 0;  // for each target, so many of the most probable tokens too

  /// Tokens to generate; 0 for none. A request that generates has no children.
  std::int64_t max_new_tokens = 0;
  SamplingParams sampling;
  std::vector<Token> end_tokens;  // generation ends before any of these
  /// What the generated text must be like; null: anything. An end token may come where the text is complete,
  /// and the request ends when nothing else may.
  std::shared_ptr<const Constraint> constraint;
  std::int32_t logprobs = -1;  // for each generated token, so many of the most probable ones; -1: none

  // Of the first request of a submission; they count for all of it.
  std::int64_t priority = 0;  // lower goes first
  std::string cache_salt;     // prefixes are shared among requests of equal salt only
};

enum class FinishReason {
  prompt,     // nothing was to be generated
  end_token,  // one of end_tokens came
  length,     // max_new_tokens were made
  stopped,    // the listener had enough, or the text is complete and its constraint lets nothing follow
  cancelled,
  failed,
  stuck,  // its own parameters left no token to choose from
};

/// Hears what happened in a step, from inside Engine::step(); must not call the engine.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// Scores of the request's targets [first, first + scores.size()).
  virtual void on_scores(RequestId id, std::size_t first, std::span<const TokenScore> scores) = 0;
  /// Just before the score of a target of a request with target_logprobs > 1: the most probable tokens there,
  /// and the target where it is not among them.
  virtual void on_target_logprobs(RequestId /*id*/, std::size_t /*target*/,
                                  std::span<const TokenLogprob> /*logprobs*/) {}
  /// A new token, and as many log-probabilities as the request asked for: the most probable tokens, and the
  /// new one where it is not among them. False ends the request (FinishReason::stopped).
  virtual bool on_token(RequestId id, Token token, std::span<const TokenLogprob> logprobs) = 0;
  /// The token that ends the request, just before on_finished with FinishReason::end_token.
  virtual void on_end_token(RequestId /*id*/, Token /*token*/, std::span<const TokenLogprob> /*logprobs*/) {}
  /// Exactly once a request. `error` says what went wrong when reason is failed or stuck.
  virtual void on_finished(RequestId id, FinishReason reason, std::string_view error) = 0;
};

}  // namespace asynct
