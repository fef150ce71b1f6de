#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asynct/text/string_table.h"
#include "asynct/text/token.h"

namespace asynct {

/// What two neighbouring symbols merge into. A lower rank merges first.
struct Merge {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  std::uint32_t rank = kNone;
  Token result = 0;
};

/// (left, right) -> Merge, open addressing; about 24 bytes a merge.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges);
  /// A pair given twice keeps the later merge, as the reference library does.
  void insert(Token left, Token right, Merge merge);
  Merge find(Token left, Token right) const {
    const std::uint64_t key = pair_key(left, right);
    for (std::size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t pair_key(Token left, Token right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot(std::uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

  std::vector<Slot> slots_;
  std::size_t mask_;
  int shift_;
};

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes (ByteLevel pre-tokenizer), else characters
  bool byte_fallback = false;  // a character without a token becomes the tokens <0xNN> of its bytes
  bool fuse_unknown = false;   // neighbouring unknown characters give one unknown token
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  std::optional<Token> unknown;
};

/// Byte-pair encoding of one pre-token ("word").
class BpeModel {
 public:
  /// `words` maps each token's text (bytes when byte_level, else UTF-8) to its id. `byte_tokens[b]` is the
  /// token <0xNN> of a byte, or -1; used with byte_fallback only.
  BpeModel(BpeOptions options, StringTable words, MergeTable merges, std::vector<Token> byte_tokens);

  /// Appends the tokens of well-formed UTF-8 `word`. Short words meet a small cache of the calling thread.
  void encode(std::string_view word, std::vector<Token>& out) const;

  const StringTable& words() const { return words_; }

  /// Bytes of a word that one token stands for at most; 0 when that has no bound, since what has no token is
  /// left out or becomes an unknown token together.
  std::size_t longest_token() const { return longest_token_; }

 private:
  void encode_word(std::string_view word, std::vector<Token>& out) const;
  void encode_uncached(std::string_view word, std::vector<Token>& out) const;
  void append_symbols(std::string_view word, std::vector<Token>& out) const;
  bool append_byte_tokens(std::string_view character, std::vector<Token>& out) const;

  BpeOptions options_;
  StringTable words_;
  MergeTable merges_;
  std::vector<Token> byte_tokens_;
  std::vector<Token> byte_symbols_;                        // byte_level: token of each byte, -1 for none
  std::unordered_map<char32_t, Token> character_symbols_;  // else: token of each character
  bool split_at_metaspace_;  // a text without pre-tokenizer may be cut before each metaspace
  std::size_t longest_token_ = 0;
  std::uint64_t cache_owner_;  // tells this model's entries in a thread's cache
};

}  // namespace asynct
