#pragma once

#include <memory>
#include <string>
#include <vector>

#include "asynct/text/grammar/grammar.h"

namespace asynct {

/// What finds the tokens that a grammar allows: xgrammar_engine.cc; no_engine.cc in a build without it.
class GrammarEngine {
 public:
  struct Result {
    std::shared_ptr<const Constraint> constraint;
    std::size_t bytes = 0;
  };

  virtual ~GrammarEngine() = default;
  /// Any thread. Error: what is wrong with the grammar, or too much work.
  virtual Result compile(const Grammar& grammar, std::int64_t work) const = 0;
};

bool has_grammar_engine();

/// token_bytes: by id; an empty one never comes.
std::unique_ptr<const GrammarEngine> make_grammar_engine(const std::vector<std::string>& token_bytes);

}  // namespace asynct
