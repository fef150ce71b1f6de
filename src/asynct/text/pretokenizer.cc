#include "asynct/text/pretokenizer.h"

#include <utility>

#include "asynct/text/unicode.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

using Emit = PreTokenizer::Emit;

/// Receives matches and the text between them in order, and emits pieces as the behaviour says. The details
/// (what a match next to a match does) are the reference library's.
class Delimiters {
 public:
  Delimiters(std::string_view text, SplitBehavior behavior, bool invert, Emit emit)
      : text_(text), behavior_(behavior), invert_(invert), emit_(emit) {}

  void match(std::size_t begin, std::size_t end) {
    if (position_ < begin) add(position_, begin, invert_);
    add(begin, end, !invert_);
    position_ = end;
  }
  void finish() {
    if (position_ < text_.size()) add(position_, text_.size(), invert_);
    flush();
  }

 private:
  void add(std::size_t begin, std::size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::isolated:
        emit(begin, end);
        break;
      case SplitBehavior::removed:
        if (!is_match) emit(begin, end);
        break;
      case SplitBehavior::contiguous:
        hold(begin, end, is_match == previous_match_);
        break;
      case SplitBehavior::merged_with_previous:
        hold(begin, end, is_match && !previous_match_);
        break;
      case SplitBehavior::merged_with_next:
        hold(begin, end, !is_match && previous_match_);
        break;
    }
    previous_match_ = is_match;
  }
  /// Keeps the piece back, joined to the one kept before or in its place.
  void hold(std::size_t begin, std::size_t end, bool join) {
    if (!join || !holding_) {
      flush();
      held_begin_ = begin;
    }
    held_end_ = end;
    holding_ = true;
  }
  void flush() {
    if (holding_) emit(held_begin_, held_end_);
    holding_ = false;
  }
  void emit(std::size_t begin, std::size_t end) {
    if (begin < end) emit_(text_.substr(begin, end - begin));
  }

  std::string_view text_;
  SplitBehavior behavior_;
  bool invert_;
  Emit emit_;
  std::size_t position_ = 0;
  bool previous_match_ = false;
  bool holding_ = false;
  std::size_t held_begin_ = 0;
  std::size_t held_end_ = 0;
};

void match_literal(std::string_view text, std::string_view literal, Delimiters& delimiters) {
  for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, at + literal.size()))
    delimiters.match(at, at + literal.size());
}

void apply(const SplitStage& stage, std::string_view text, Emit emit) {
  if (const auto* known = std::get_if<KnownPattern>(&stage.pattern)) {
    if (stage.behavior == SplitBehavior::isolated) return scan(*known, text, emit);
    Delimiters delimiters(text, stage.behavior, stage.invert, emit);
    scan(*known, text, [&](std::string_view piece) {
      const auto begin = static_cast<std::size_t>(piece.data() - text.data());
      delimiters.match(begin, begin + piece.size());
    });
    return delimiters.finish();
  }
  Delimiters delimiters(text, stage.behavior, stage.invert, emit);
  if (const auto* literal = std::get_if<std::string>(&stage.pattern))
    match_literal(text, *literal, delimiters);
  else
    std::get<Regex>(stage.pattern).for_each_match(text, [&](std::size_t begin, std::size_t end) {
      delimiters.match(begin, end);
    });
  delimiters.finish();
}

void apply(const DigitsStage& stage, std::string_view text, Emit emit) {
  Delimiters delimiters(text, stage.individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false,
                        emit);
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_valid_utf8(text.data() + i);
    const std::size_t next = i + static_cast<std::size_t>(c.length);
    if ((unicode::properties(c.value) & unicode::kNumeric) != 0) delimiters.match(i, next);
    i = next;
  }
  delimiters.finish();
}

void apply(const ByteLevelStage& stage, std::string_view text, Emit emit) {
  std::string prefixed;
  if (stage.add_prefix_space && !text.starts_with(' ')) {
    prefixed.reserve(text.size() + 1);
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  if (stage.use_regex)
    scan(KnownPattern::gpt2, text, emit);
  else
    emit(text);
}

void apply(const MetaspaceStage& stage, bool at_start, std::string_view text, Emit emit) {
  std::string replaced;
  replaced.reserve(text.size() + stage.replacement.size());
  const bool prepends = stage.prepend == MetaspaceStage::Prepend::always ||
                        (stage.prepend == MetaspaceStage::Prepend::first && at_start);
  if (prepends && !text.starts_with(' ') && !text.starts_with(stage.replacement))
    replaced = stage.replacement;
  for (const char c : text) {
    if (c == ' ')
      replaced += stage.replacement;
    else
      replaced += c;
  }
  if (!stage.split) return emit(replaced);
  Delimiters delimiters(replaced, SplitBehavior::merged_with_next, false, emit);
  match_literal(replaced, stage.replacement, delimiters);
  delimiters.finish();
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStage> stages) : stages_(std::move(stages)) {}

bool PreTokenizer::byte_level() const {
  return !stages_.empty() && std::holds_alternative<ByteLevelStage>(stages_.back());
}

void PreTokenizer::run(std::size_t stage, std::string_view piece, bool at_start, Emit emit) const {
  if (piece.empty()) return;
  if (stage == stages_.size()) return emit(piece);
  const auto apply_stage = [&](Emit emit_piece) {
    std::visit(
        [&](const auto& s) {
          if constexpr (std::is_same_v<std::decay_t<decltype(s)>, MetaspaceStage>)
            apply(s, at_start, piece, emit_piece);
          else
            apply(s, piece, emit_piece);
        },
        stages_[stage]);
  };
  if (stage + 1 == stages_.size()) return apply_stage(emit);
  bool first = at_start;
  apply_stage([&](std::string_view part) { run(stage + 1, part, std::exchange(first, false), emit); });
}

}  // namespace asynct
