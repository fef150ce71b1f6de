#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/text/normalizer.h"

namespace asynct {

/// How tokens become text. The stages of tokenizer.json's decoder in the one order that files use:
/// ByteLevel alone, Metaspace alone, or Replace..., ByteFallback, Fuse, Strip, each optional.
struct DecoderSpec {
  struct Strip {
    std::string content;  // one character
    int start = 0;        // how many of it are removed from the start of the text
  };
  bool present = false;  // false: tokens are joined with spaces
  bool byte_level = false;
  std::optional<std::string> metaspace;  // the character that stands for a space
  bool metaspace_drops_first = false;    // the first token loses it
  std::vector<ReplaceText> replacements;
  bool byte_fallback = false;
  bool fuse = false;
  Strip strip;
};

/// ByteLevel's table: which byte a printable character stands for, -1 for none.
int byte_of_character(char32_t character);

/// The bytes of `content` under that table; nothing when a character is not of it.
std::optional<std::string> bytes_of_content(std::string_view content);

/// The byte NN of a token "<0xNN>", -1 for other tokens.
int byte_of_fallback_token(std::string_view content);

/// What a token whose content is `content` adds to the text. `first`: no token before it gave text.
std::string decode_token(const DecoderSpec& decoder, std::string_view content, bool first);

}  // namespace asynct
