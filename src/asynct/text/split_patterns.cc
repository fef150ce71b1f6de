#include "asynct/text/split_patterns.h"

#include "asynct/text/unicode.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

using unicode::kLetter;
using unicode::kNumber;
using unicode::kSpace;

constexpr unsigned kAny = kLetter | kNumber | kSpace;

/// A place in the text. Beyond the end every character has no properties and no length.
struct Cursor {
  const char* at;
  const char* end;

  struct Class {
    unsigned bits;  // of kAny; 0: punctuation, symbols, marks, controls
    int length;
  };
  Class peek() const {
    if (at == end) return {0, 0};
    const auto byte = static_cast<unsigned char>(*at);
    if (byte < 0x80) return {unicode::kBlocks[byte] & kAny, 1};  // the first block is ASCII
    const CodePoint c = decode_valid_utf8(at);
    return {unicode::properties(c.value) & kAny, c.length};
  }
  bool starts_with(char c) const { return at != end && *at == c; }
  bool at_newline() const { return at != end && (*at == '\n' || *at == '\r'); }
};

/// Skips characters whose class has one of `bits`, at most `limit` of them.
void skip(Cursor& cursor, unsigned bits, std::size_t limit = SIZE_MAX) {
  for (; limit > 0; --limit) {
    const Cursor::Class c = cursor.peek();
    if ((c.bits & bits) == 0) return;
    cursor.at += c.length;
  }
}

/// Skips characters that are neither letters, numbers nor white space.
void skip_others(Cursor& cursor) {
  for (Cursor::Class c = cursor.peek(); c.bits == 0 && c.length > 0; c = cursor.peek()) cursor.at += c.length;
}

/// Length of 's 't 're 've 'm 'll 'd at the cursor, 0 for none. With `fold` in any case, by Unicode's
/// folding, where U+017F (long s, two bytes) is an s.
int contraction(const Cursor& cursor, bool fold) {
  const auto left = cursor.end - cursor.at;
  if (left < 2 || cursor.at[0] != '\'') return 0;
  const auto letter = [&](int i) {
    const char c = cursor.at[i];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return left > 2 && letter(2) == 'e' ? 3 : 0;
    case 'l':
      return left > 2 && letter(2) == 'l' ? 3 : 0;
    case '\xC5':
      return fold && left > 2 && cursor.at[2] == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

/// \s+(?!\S)|\s+ : white space up to the last character before the next word, which takes that character with
/// it; all of it at the end of the text, or when it is a single character.
void skip_space(Cursor& cursor) {
  const char* const begin = cursor.at;
  const char* last = begin;
  for (Cursor::Class c = cursor.peek(); (c.bits & kSpace) != 0; c = cursor.peek()) {
    last = cursor.at;
    cursor.at += c.length;
  }
  if (cursor.at != cursor.end && last != begin) cursor.at = last;
}

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void next_gpt2(Cursor& cursor) {
  if (const int length = contraction(cursor, false)) {
    cursor.at += length;
    return;
  }
  Cursor word = cursor;
  if (word.starts_with(' ')) ++word.at;
  const Cursor::Class c = word.peek();
  if ((c.bits & kSpace) != 0 || c.length == 0) return skip_space(cursor);
  if (c.bits == 0)
    skip_others(word);
  else
    skip(word, c.bits);
  cursor = word;
}

/// \s*[\r\n]+ : white space up to its last newline. False, and no move, when it has none.
bool skip_to_newline(Cursor& cursor) {
  const char* after_newline = nullptr;
  Cursor space = cursor;
  for (Cursor::Class c = space.peek(); (c.bits & kSpace) != 0; c = space.peek()) {
    const bool newline = space.at_newline();
    space.at += c.length;
    if (newline) after_newline = space.at;
  }
  if (after_newline == nullptr) return false;
  cursor.at = after_newline;
  return true;
}

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
/// \s+(?!\S)|\s+   with k = `digits`
void next_llama3(Cursor& cursor, std::size_t digits) {
  if (const int length = contraction(cursor, true)) {
    cursor.at += length;
    return;
  }
  const Cursor::Class first = cursor.peek();
  if ((first.bits & kLetter) != 0) return skip(cursor, kLetter);
  if ((first.bits & kNumber) != 0) return skip(cursor, kNumber, digits);
  Cursor second = cursor;
  second.at += first.length;
  if (!cursor.at_newline() && (second.peek().bits & kLetter) != 0) {
    skip(second, kLetter);
    cursor = second;
    return;
  }
  const bool space = cursor.starts_with(' ');
  const Cursor::Class other = space ? second.peek() : first;
  if (other.bits == 0 && other.length > 0) {
    if (space) cursor = second;
    skip_others(cursor);
    while (cursor.at_newline()) ++cursor.at;
    return;
  }
  if (!skip_to_newline(cursor)) skip_space(cursor);
}

template <class Next>
void scan_with(std::string_view text, FunctionRef<void(std::string_view)> piece, Next&& next) {
  Cursor cursor{text.data(), text.data() + text.size()};
  while (cursor.at != cursor.end) {
    const char* const begin = cursor.at;
    next(cursor);
    piece({begin, static_cast<std::size_t>(cursor.at - begin)});
  }
}

}  // namespace

std::optional<KnownPattern> known_pattern(std::string_view expression) {
  if (expression == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)" ||
      expression == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")
    return KnownPattern::gpt2;
  constexpr std::string_view kHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view kTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!expression.starts_with(kHead) || !expression.ends_with(kTail)) return std::nullopt;
  if (expression.size() < kHead.size() + kTail.size()) return std::nullopt;
  const std::string_view digits =
      expression.substr(kHead.size(), expression.size() - kHead.size() - kTail.size());
  if (digits.empty()) return KnownPattern::qwen2;
  if (digits == "{1,3}") return KnownPattern::llama3;
  return std::nullopt;
}

void scan(KnownPattern pattern, std::string_view text, FunctionRef<void(std::string_view)> piece) {
  switch (pattern) {
    case KnownPattern::gpt2:
      return scan_with(text, piece, next_gpt2);
    case KnownPattern::llama3:
      return scan_with(text, piece, [](Cursor& c) { next_llama3(c, 3); });
    case KnownPattern::qwen2:
      return scan_with(text, piece, [](Cursor& c) { next_llama3(c, 1); });
  }
}

}  // namespace asynct
