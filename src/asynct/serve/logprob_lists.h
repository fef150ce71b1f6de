#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asynct/engine/request.h"
#include "asynct/serve/generation.h"

namespace asynct::serve {

/// The text of a token as lists of log-probabilities show it: its bytes, with U+FFFD for what is no
/// character.
std::string token_text(const Tokenizer& tokenizer, Token token);

/// `logprobs` of a completion: tokens, token_logprobs, top_logprobs and text_offset, side by side.
class LogprobLists {
 public:
  LogprobLists(const Tokenizer& tokenizer, std::int64_t first_offset)
      : tokenizer_(tokenizer), offset_(first_offset) {}

  void add_first(Token token);  // of a prompt: nothing predicts it
  void add(const AnswerToken& token);
  void add(Token token, const TokenScore& score);  // with the most probable token beside it
  void add(Token token, const TokenScore& score, const std::vector<TokenLogprob>& tops);

  std::int64_t offset() const { return offset_; }
  void write(std::string& out) const;

 private:
  void add_entry(Token token, float logprob, std::span<const TokenLogprob> tops);
  void begin(Token token);

  const Tokenizer& tokenizer_;
  std::int64_t offset_;
  std::string tokens_;
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offset_;
};

}  // namespace asynct::serve
