#include "asynct/text/grammar/grammar.h"

#include <utility>

#include "asynct/base/error.h"
#include "asynct/text/grammar/grammar_engine.h"
#include "asynct/text/grammar/regex_escapes.h"
#include "asynct/text/grammar/schema_checks.h"

namespace asynct {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_literal(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";  // of fixed width: \x takes any digits that follow
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += '"';
}

std::string key_of(const Grammar& grammar) {
  return cat(static_cast<int>(grammar.kind), grammar.any_whitespace ? "+" : "-", grammar.text);
}

}  // namespace

Grammar choice_grammar(std::span<const std::string> choices) {
  Grammar grammar{.kind = Grammar::Kind::ebnf, .text = "root ::= "};
  if (choices.empty()) fail("no choices");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) fail("an empty choice");
    if (i > 0) grammar.text += " | ";
    append_literal(choices[i], grammar.text);
  }
  return grammar;
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                 const GrammarLimits& limits)
    : tokenizer_(tokenizer), vocabulary_(vocabulary), limits_(limits) {}

GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::available() { return has_grammar_engine(); }

const GrammarEngine& GrammarCompiler::engine() const {
  std::call_once(made_, [&] {
    std::vector<std::string> tokens(static_cast<std::size_t>(vocabulary_));
    for (std::int64_t id = 0; id < vocabulary_; ++id) {
      const auto token = static_cast<Token>(id);
      if (!tokenizer_.is_special(token)) tokens[static_cast<std::size_t>(id)] = tokenizer_.token_bytes(token);
    }
    engine_ = make_grammar_engine(tokens);
  });
  return *engine_;
}

std::shared_ptr<const Constraint> GrammarCompiler::compile(Grammar grammar) const {
  if (grammar.text.size() > limits_.bytes)
    fail("a grammar of ", grammar.text.size(), " bytes, expected at most ", limits_.bytes);
  if (grammar.kind == Grammar::Kind::regex) grammar.text = without_byte_escapes(grammar.text);
  if (grammar.text.find('\0') != std::string::npos) fail("a NUL character");
  if (grammar.kind == Grammar::Kind::json_schema) check_schema(grammar.text);
  std::string key = key_of(grammar);
  if (auto constraint = find(key)) return constraint;
  GrammarEngine::Result result = engine().compile(grammar, limits_.work);
  keep({.key = std::move(key), .constraint = result.constraint, .bytes = result.bytes});
  return std::move(result.constraint);
}

std::shared_ptr<const Constraint> GrammarCompiler::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  compiled_.splice(compiled_.begin(), compiled_, found->second);
  return found->second->constraint;
}

void GrammarCompiler::keep(Compiled compiled) const {
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(compiled.key)) return;  // another thread was faster
  bytes_ += compiled.bytes + compiled.key.size();
  compiled_.push_front(std::move(compiled));
  by_key_.emplace(compiled_.front().key, compiled_.begin());
  while (compiled_.size() > limits_.cached || bytes_ > limits_.cached_bytes) {
    bytes_ -= compiled_.back().bytes + compiled_.back().key.size();
    by_key_.erase(compiled_.back().key);
    compiled_.pop_back();
  }
}

std::size_t GrammarCompiler::cached() const {
  const std::lock_guard lock(mutex_);
  return compiled_.size();
}

}  // namespace asynct
