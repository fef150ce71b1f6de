#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asynct/base/json.h"
#include "asynct/text/token_constraint.h"
#include "asynct/text/tokenizer.h"

namespace asynct {

/// What a text must match from its beginning to its end.
struct Grammar {
  enum class Kind {
    json_schema,  // `text` is the schema
    regex,        // JavaScript's dialect; a dot is any character
    ebnf,         // xgrammar's, which is GBNF's: the rule `root`
  };
  Kind kind = Kind::regex;
  bool any_whitespace = true;  // between the parts of JSON: as the model likes, or none but ", " and ": "
  std::string text;
};

/// One of these texts.
Grammar choice_grammar(std::span<const std::string> choices);

struct GrammarLimits {
  std::size_t bytes = std::size_t{64} << 10;         // of a grammar's text
  std::int64_t work = 20'000'000;                    // of a compilation (work.h): a second or two
  std::size_t cached = 64;                           // grammars
  std::size_t cached_bytes = std::size_t{64} << 20;  // of them, compiled
};

class GrammarEngine;  // xgrammar, or nothing

/// Makes constraints of grammars for the vocabulary of one model. Any number of threads may use one at once;
/// grammars used lately are kept.
class GrammarCompiler {
 public:
  /// vocabulary: the model's, which may have more ids than the tokenizer. `tokenizer` must outlive it.
  GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary, const GrammarLimits& limits = {});
  ~GrammarCompiler();

  /// Whether this build has a grammar engine.
  static bool available();

  /// Error, with the reason, for what is no grammar, what cannot be held to, and what would be too much work.
  std::shared_ptr<const Constraint> compile(Grammar grammar) const;

  std::size_t cached() const;

 private:
  struct Compiled {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
    std::size_t bytes = 0;
  };
  std::shared_ptr<const Constraint> find(const std::string& key) const;
  void keep(Compiled compiled) const;
  const GrammarEngine& engine() const;

  const Tokenizer& tokenizer_;
  const std::int64_t vocabulary_;
  const GrammarLimits limits_;
  mutable std::once_flag made_;
  mutable std::unique_ptr<const GrammarEngine> engine_;  // when the first grammar comes

  mutable std::mutex mutex_;              // of what follows
  mutable std::list<Compiled> compiled_;  // used last first
  mutable std::unordered_map<std::string_view, std::list<Compiled>::iterator> by_key_;
  mutable std::size_t bytes_ = 0;
};

}  // namespace asynct
