#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/engine/request.h"
#include "asynct/serve/generation_options.h"
#include "asynct/text/stop_matcher.h"
#include "asynct/text/stream_decoder.h"
#include "asynct/text/tokenizer.h"

namespace asynct::serve {

/// A token of an answer and what was asked for beside it.
struct AnswerToken {
  Token token = 0;
  std::vector<TokenLogprob> logprobs;  // the most probable tokens, and `token` itself; empty: none wanted
};

/// Why a choice ended, in OpenAI's words.
struct Ending {
  std::string_view reason;                 // "stop", "length", "abort", "error"
  std::optional<std::string> stop_string;  // the one that was met
  std::optional<Token> stop_token;         // of stop_token_ids
  std::string error;                       // with "error"
};

struct ChoiceDelta {
  std::string text;
  std::vector<AnswerToken> tokens;  // listed only when log-probabilities are wanted
  std::optional<Ending> ending;
};

/// One answer as it grows: text from tokens, cut at the first stop string.
class Choice {
 public:
  Choice(const Tokenizer& tokenizer, const GenerationOptions& options);

  /// False: a stop string was met.
  bool push(Token token, std::span<const TokenLogprob> logprobs);
  /// The end-of-text token: counted and listed, not shown.
  void push_end(Token token, std::span<const TokenLogprob> logprobs);
  /// The ending's reason.
  std::string_view finish(FinishReason reason, std::string_view error);

  /// What is new since the last call; the ending comes once.
  ChoiceDelta take();
  bool has_news() const { return !delta_.text.empty() || !delta_.tokens.empty() || delta_.ending; }
  std::int64_t token_count() const { return token_count_; }

 private:
  void list(Token token, std::span<const TokenLogprob> logprobs);

  const GenerationOptions& options_;
  ChoiceDelta delta_;
  std::int64_t token_count_ = 0;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  std::optional<Token> end_token_;
};

}  // namespace asynct::serve
