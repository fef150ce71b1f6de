#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "asynct/base/function_ref.h"
#include "asynct/text/tokenizer.h"

namespace asynct {

/// Log-probability wanted of tokens[score_begin ..), each given all before it. 1 <= score_begin <
/// tokens.size(): the first token has nothing to be predicted from (callers put BOS, or another prefix token,
/// in front).
struct ScoreRequest {
  std::vector<Token> tokens;
  std::int64_t score_begin = 0;
};

struct SequenceScore {
  double logprob = 0;   // sum over the scored tokens
  bool greedy = false;  // each scored token was the argmax
};

/// Greedy text after a prompt.
struct GenerateRequest {
  std::vector<Token> prompt;
  std::int64_t max_new_tokens = 256;
  std::vector<std::string> stop;  // the text ends before the first of these; they may span tokens
};

struct GeneratedText {
  std::string text;             // cut at the first stop string; without the end-of-sequence token
  std::int64_t new_tokens = 0;  // tokens the model made, those cut away included
};

/// What an evaluator needs of a model. Prefixes that requests of one call share are computed once (contexts
/// of multiple choice, common shots); the order of requests and their company never change a result.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual const Tokenizer& tokenizer() const = 0;
  /// Longest sequence the model takes, in tokens.
  virtual std::int64_t max_length() const = 0;

  /// Calls done(index, score) once for each request, in the order they finish. Returns false when interrupted
  /// (InterruptGuard), with the rest not done. Error: more than max_length() + 1 tokens (the last one is only
  /// predicted, so it takes no place in the context).
  virtual bool score(std::span<const ScoreRequest> requests,
                     FunctionRef<void(std::size_t index, const SequenceScore& score)> done) = 0;

  /// The same for generation; prompt + max_new_tokens must fit max_length().
  virtual bool generate(std::span<const GenerateRequest> requests,
                        FunctionRef<void(std::size_t index, const GeneratedText& text)> done) = 0;

  /// Rows pushed through the model since construction: for rates.
  virtual std::int64_t tokens_processed() const = 0;
};

}  // namespace asynct
