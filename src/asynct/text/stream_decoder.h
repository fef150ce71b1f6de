#pragma once

#include <string>

#include "asynct/text/token.h"

namespace asynct {

class Tokenizer;

/// Decodes a stream of tokens. Every piece it returns is whole characters; bytes of an unfinished character
/// wait for the next token. The pieces joined equal Tokenizer::decode of all tokens. (One exception: among
/// the byte tokens of a byte-fallback tokenizer, decode() spoils a whole run for one bad byte; here the good
/// characters have been sent by then and stay.)
class StreamDecoder {
 public:
  /// `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);

  /// The text that became certain with `token`; may be empty.
  std::string push(Token token);
  /// The end: an unfinished character becomes U+FFFD. The decoder then starts afresh.
  std::string finish();

 private:
  void strip(std::string& text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;    // no token has given text yet
  int strip_left_ = 0;   // leading characters that the decoder's Strip still removes
  std::string pending_;  // bytes of an unfinished character
};

}  // namespace asynct
