#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/text/stop_matcher.h"
#include "asynct/text/stream_decoder.h"
#include "asynct/text/token.h"

namespace asynct {

/// A text has more tokens than EncodeOptions::most_tokens.
class TooManyTokens : public Error {
 public:
  explicit TooManyTokens(std::size_t most) : Error(cat("text: more than ", most, " tokens")) {}
};

struct EncodeOptions {
  bool add_special_tokens = false;     // BOS, EOS and their kin, as the file's post-processor says
  bool parse_special = true;           // false: a special token's content in the text is ordinary text
  std::size_t most_tokens = SIZE_MAX;  // TooManyTokens as soon as it is clear that there are more
};

struct TokenizerParts;

/// A BPE tokenizer read from a Hugging Face tokenizer.json: normalizer, added tokens, pre-tokenizer, merges,
/// post-processor and decoder. Gives the ids that the `tokenizers` library gives. Immutable, so any number of
/// threads may use one at once; movable.
class Tokenizer {
 public:
  /// Reads `directory`/tokenizer.json and, when it is there, tokenizer_config.json (BOS, EOS and padding
  /// tokens, add_bos_token). Errors name the file and the offending part.
  static Tokenizer load(const std::string& directory);

  /// The same from text, without a tokenizer_config.json; `what` opens every error message.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view what);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Any bytes: each ill-formed UTF-8 sequence counts as U+FFFD. The time is near linear in the text and the
  /// stack constant, whatever the text. The file's truncation and padding are not applied.
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Well-formed UTF-8; bytes that do not form a character become U+FFFD. Unknown ids give nothing.
  std::string decode(std::span<const Token> tokens, bool skip_special = false) const;

  /// The bytes a token stands for, part of a character perhaps; empty for an unknown id.
  std::string_view token_bytes(Token token) const;
  bool is_special(Token token) const;
  /// Highest id, added tokens included, plus 1. Ids below may be unused.
  int vocab_size() const;

  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  std::optional<Token> pad() const;
  /// Whether encode() with add_special_tokens starts with BOS.
  bool adds_bos() const;

  /// The token whose content in tokenizer.json is `content` ("<|endoftext|>", "Ġthe", "▁the").
  std::optional<Token> token_id(std::string_view content) const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace asynct
