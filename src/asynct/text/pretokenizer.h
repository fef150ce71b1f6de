#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "asynct/base/function_ref.h"
#include "asynct/text/regex.h"
#include "asynct/text/split_patterns.h"

namespace asynct {

/// What becomes of the pieces between matches of a Split ("delimiters"), as tokenizer.json names it.
enum class SplitBehavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };

struct SplitStage {
  std::variant<KnownPattern, std::string, Regex> pattern;  // a string stands for itself
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // matches and the rest change places
};
struct DigitsStage {
  bool individual = false;
};
struct ByteLevelStage {
  bool add_prefix_space = false;
  bool use_regex = true;
};
struct MetaspaceStage {
  enum class Prepend { always, first, never };
  std::string replacement;
  Prepend prepend = Prepend::always;
  bool split = true;
};
using PreTokenizerStage = std::variant<SplitStage, DigitsStage, ByteLevelStage, MetaspaceStage>;

/// Cuts normalized text into the words that BPE encodes one by one. ByteLevel's mapping of bytes to printable
/// characters is left out: the vocabulary is mapped back to bytes instead (BpeOptions::byte_level).
class PreTokenizer {
 public:
  using Emit = FunctionRef<void(std::string_view word)>;

  /// ByteLevel may only be the last stage; the loader sees to it.
  explicit PreTokenizer(std::vector<PreTokenizerStage> stages = {});

  /// `at_start`: the piece begins the whole text (Metaspace's "first" asks). Words are never empty.
  void split(std::string_view piece, bool at_start, Emit emit) const { run(0, piece, at_start, emit); }

  bool byte_level() const;

 private:
  void run(std::size_t stage, std::string_view piece, bool at_start, Emit emit) const;

  std::vector<PreTokenizerStage> stages_;
};

}  // namespace asynct
