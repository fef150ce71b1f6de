#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/engine/sampling.h"
#include "asynct/text/token.h"

namespace asynct {

/// How often each token of a text has come, in order of first appearance. Open addressing over token ids:
/// memory follows the text, not the vocabulary, and grows geometrically.
class TokenHistory {
 public:
  struct Entry {
    Token token;
    std::int32_t count;  // 0: added, never counted
  };

  void reserve(std::size_t tokens);
  /// Makes sure that the token has an entry, and returns it; it stays valid until the next call.
  Entry& add(Token token);
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::size_t slot(Token token) const;  // where it is, or the empty slot where it belongs
  void rehash(std::size_t slots);

  std::vector<Entry> entries_;
  std::vector<std::int32_t> table_;  // index into entries_, -1: empty; a power of two, at most half full
};

/// What one request's parameters do to its logits before a token is chosen, in vLLM's order: allowed tokens,
/// bad words, end tokens before min_tokens, logit bias; then the repetition penalty (over prompt and output),
/// the frequency penalty and the presence penalty (both over the output). What is banned becomes -infinity.
/// Depends on the parameters and the text only: a request that starts again is given its text again.
///   repetition: logit / penalty where the logit is positive, logit * penalty elsewhere, once a token
///   frequency:  logit - penalty * times in the output;  presence: logit - penalty
class LogitsProcessor {
 public:
  /// The parameters must be valid for the vocabulary (validate), the tokens of the text in it; end tokens
  /// that are not are passed over. `generated`: what the request made before it was set aside. Nothing is
  /// kept by reference.
  LogitsProcessor(const SamplingParams& params, std::span<const Token> prompt,
                  std::span<const Token> end_tokens, std::span<const Token> generated = {});

  /// Whether apply() would do anything to the next token's logits.
  bool changes_logits() const;

  /// Whether any next token of a vocabulary of this size is not banned.
  bool allows_any(std::int64_t vocabulary) const;

  /// To be called with each generated token.
  void accept(Token token);

  /// logits [V] of the next token.
  void apply(std::span<float> logits) const;

 private:
  void remember(Token token);  // as the end of the text, for bad words
  bool completes(std::span<const Token> word) const;
  bool penalizes() const;
  bool too_short() const { return generated_ < min_tokens_ && !end_tokens_.empty(); }
  template <class Function>
  void for_each_bad_word(Function function) const;
  void penalize(std::span<float> logits) const;

  float repetition_penalty_;
  float presence_penalty_;
  float frequency_penalty_;
  std::int64_t min_tokens_;
  std::int64_t generated_ = 0;
  std::vector<LogitBias> logit_bias_;
  std::vector<Token> allowed_tokens_;  // ascending
  std::vector<Token> end_tokens_;
  std::vector<Token> bad_words_;             // one after another
  std::vector<std::size_t> bad_words_ends_;  // in bad_words_
  std::size_t tail_size_ = 0;                // tokens of the text that a bad word can depend on
  std::vector<Token> tail_;                  // the last of them
  TokenHistory history_;                     // output; and the prompt when repetition is penalized
};

}  // namespace asynct
