#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asynct/text/tokenizer.h"

namespace asynct {

/// Whether prompts start with BOS.
enum class BosMode {
  tokenizer,  // as the tokenizer's post-processor says: lm-eval's hf backend
  always,     // add_bos_token=True
  never,      // add_bos_token=False
};

/// A context and what is scored after it, as tokens.
struct TokenPair {
  std::vector<Token> context;       // not empty
  std::vector<Token> continuation;  // what follows the context's tokens in the encoding of both together
};

/// A stretch of a long text: `scored` tokens at the end of `tokens` are predicted from those before them.
struct TokenWindow {
  std::vector<Token> tokens;
  std::int64_t scored = 0;
};

/// Of `continuations`[index] with its context there are too many, of the context alone there are not.
class ContinuationTooLong : public TooManyTokens {
 public:
  ContinuationTooLong(std::size_t most, std::size_t which) : TooManyTokens(most), index(which) {}
  const std::size_t index;
};

/// Turns prompts into tokens as lm-eval's hf backend does. Stateless after construction; any thread may call.
class PromptEncoder {
 public:
  /// `most_tokens`: of one text; TooManyTokens when there are more. Error: BosMode::always with a tokenizer
  /// that has no BOS token.
  PromptEncoder(const Tokenizer& tokenizer, BosMode bos, std::size_t most_tokens = SIZE_MAX);

  /// Tokens of one text, with BOS as the mode says (never twice: a text that spells BOS itself gets no
  /// other).
  std::vector<Token> encode(std::string_view text) const;

  /// The context's tokens and, for each continuation, the tokens that follow it. White space at the end of
  /// the context counts as the beginning of the continuations; an empty context becomes the prefix token.
  /// TooManyTokens of the context, ContinuationTooLong of a continuation with it.
  std::vector<TokenPair> encode_pairs(std::string_view context,
                                      const std::vector<std::string>& continuations) const;

  /// Windows that predict every token of `text` once, each with at most `max_length` tokens of input: the
  /// first starts from the prefix token, only the last one overlaps its predecessor.
  std::vector<TokenWindow> encode_windows(std::string_view text, std::int64_t max_length) const;

  /// BOS, else EOS. Error: the tokenizer has neither.
  Token prefix_token() const;

 private:
  const Tokenizer& tokenizer_;
  std::size_t most_tokens_;
  bool add_special_ = false;
  bool prepend_bos_ = false;  // BosMode::always with a post-processor that adds none
  std::string bos_text_;
};

}  // namespace asynct
