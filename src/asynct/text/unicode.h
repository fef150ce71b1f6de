#pragma once

#include <cstdint>

namespace asynct::unicode {

/// Properties of a code point, as the `tokenizers` library's engines see them (tools/make_unicode_tables.py
/// asked it). Oniguruma, Rust and the regex crate follow different Unicode versions, hence two kinds of
/// number and of white space.
enum Property : std::uint8_t {
  kLetter = 1,     // \p{L} in a pattern
  kNumber = 2,     // \p{N} in a pattern
  kSpace = 4,      // \s in a pattern
  kNumeric = 8,    // the Digits pre-tokenizer
  kWord = 16,      // single_word of added tokens
  kWhite = 32,     // lstrip and rstrip of added tokens
  kInert = 64,     // NFC changes neither it nor its neighbours on its account
  kBarrier = 128,  // normalization there does not know its decomposition or combining class (too new)
};

extern const std::uint16_t kBlockIndex[0x110000 / 128];
extern const std::uint8_t kBlocks[];

/// Properties of `code_point` < 0x110000, or'ed.
inline std::uint8_t properties(char32_t code_point) {
  return kBlocks[kBlockIndex[code_point >> 7] * 128u + (code_point & 127u)];
}

}  // namespace asynct::unicode
