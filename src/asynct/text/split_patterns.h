#pragma once

#include <optional>
#include <string_view>

#include "asynct/base/function_ref.h"

namespace asynct {

/// The split patterns of the common byte-level tokenizers, as hand-written scanners: one pass, no
/// backtracking, constant stack. Every character of the text belongs to exactly one piece.
enum class KnownPattern {
  gpt2,    // GPT-2, also ByteLevel's own (use_regex)
  llama3,  // Llama 3: case-blind contractions, digits in threes, newlines bound to punctuation
  qwen2,   // Qwen 2, 2.5 and 3: the same with single digits
};

/// The scanner for a regular expression as written in tokenizer.json, if it is one of these.
std::optional<KnownPattern> known_pattern(std::string_view expression);

/// Calls piece() on the consecutive pieces of well-formed UTF-8 `text`.
void scan(KnownPattern pattern, std::string_view text, FunctionRef<void(std::string_view)> piece);

}  // namespace asynct
