#pragma once

#include <string>
#include <string_view>

// lm-evaluation-harness's answer filters for arithmetic, as hand-written matchers: each gives what its
// regular expression gives, in linear time.
namespace asynct {

/// What a filter gives when nothing matches.
inline constexpr std::string_view kNoAnswer = "[invalid]";

/// strict-match of gsm8k: the group of the first `#### (\-?[0-9\.\,]+)`.
std::string filter_hash_answer(std::string_view response);

/// strict-match of gsm8k_cot: the group of the first `The answer is (\-?[0-9\.\,]+).` (the last dot is any
/// character but a line feed, so "The answer is 15" at the very end gives "1").
std::string filter_the_answer_is(std::string_view response);

/// flexible-extract: the last match of `(-?[$0-9.,]{2,})|(-?[0-9]+)`.
std::string filter_last_number(std::string_view response);

/// Passes the response through.
std::string filter_none(std::string_view response);

/// exact_match as gsm8k sets it: on both sides `,`, `$`, everything up to the last "#### " and one final dot
/// are removed and letters are lowered; then the two are compared.
bool exact_match(std::string_view prediction, std::string_view target);

/// One side of exact_match.
std::string normalize_answer(std::string_view text);

}  // namespace asynct
