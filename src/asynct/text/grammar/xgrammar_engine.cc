#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <optional>

#include "asynct/base/error.h"
#include "asynct/text/grammar/big_stack.h"
#include "asynct/text/grammar/grammar_engine.h"
#include "asynct/text/grammar/work.h"
#include "asynct/text/grammar/xgrammar_log.h"

namespace asynct {
namespace {

// Of one text. A token brings some work along, and what is not needed is saved up: what a step costs is
// bounded, and what all of them cost. Ordinary grammars take hundreds of units a token; 20,000 are a
// millisecond or two. A large vocabulary has more tokens that must be tried one by one.
std::int64_t work_of_token(std::int64_t vocabulary) { return 20'000 + vocabulary; }
constexpr std::int64_t kTokensSaved = 20;
// Work of accept() leaves states behind, that of fill() does not.
constexpr std::int64_t kPriceOfStates = 16;

// White space between the parts of JSON: enough for deep indentation, not for a model that never comes back.
constexpr int kMostWhitespace = 20;

class Matcher : public TokenConstraint {
 public:
  explicit Matcher(const xgrammar::CompiledGrammar& grammar)
      : grammar_(grammar),
        beyond_((32 - grammar.GetTokenizerInfo().GetVocabSize() % 32) % 32),
        work_of_token_(work_of_token(grammar.GetTokenizerInfo().GetVocabSize())) {
    guarded(1, [&] { matcher_.emplace(grammar); });
  }

  void fill(std::span<std::uint32_t> allowed) override {
    const bool filled = guarded(1, [&] {
      auto shape = static_cast<std::int64_t>(allowed.size());
      DLTensor bits{.data = allowed.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &shape};
      matcher_->FillNextTokenBitmask(&bits);
    });
    if (!filled) std::fill(allowed.begin(), allowed.end(), 0U);
    if (beyond_ > 0) allowed.back() &= ~std::uint32_t{0} >> beyond_;  // xgrammar leaves them as they come
  }

  bool accept(Token token) override {
    bool accepted = false;
    guarded(kPriceOfStates, [&] { accepted = matcher_->AcceptToken(token); });
    work_ = std::min(work_ + work_of_token_, kTokensSaved * work_of_token_);
    if (!accepted && error_.empty()) error_ = "the grammar does not allow the token";
    return accepted;
  }

  bool complete() const override { return !failed() && matcher_->IsCompleted(); }
  bool failed() const override { return !error_.empty(); }

  std::string_view error() const override {
    return failed() ? std::string_view(error_) : std::string_view("no token may follow");
  }

 private:
  // False: it threw, now or earlier; the matcher is not touched again.
  template <class Function>
  bool guarded(std::int64_t price, Function function) {
    if (failed()) return false;
    work_left = work_ / price;
    try {
      function();
      work_ = work_left * price;
      return true;
    } catch (const std::exception& exception) {
      error_ = exception.what();
      if (error_.empty()) error_ = "unknown";
    }
    if (work_left < 0) error_ = "the grammar is too ambiguous: too much work to find the next token";
    return false;
  }

  const xgrammar::CompiledGrammar grammar_;
  const int beyond_;  // bits of the last word that are no tokens
  std::optional<xgrammar::GrammarMatcher> matcher_;
  const std::int64_t work_of_token_;
  std::int64_t work_ = kTokensSaved * work_of_token_;
  std::string error_;
};

class CompiledConstraint : public Constraint {
 public:
  explicit CompiledConstraint(xgrammar::CompiledGrammar grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<TokenConstraint> start() const override { return std::make_unique<Matcher>(grammar_); }

 private:
  const xgrammar::CompiledGrammar grammar_;
};

// Without the place in xgrammar's sources and the schema itself, which some of its messages repeat.
std::string reason(const std::exception& exception) {
  const auto* const error = dynamic_cast<const std::runtime_error*>(&exception);
  std::string text = error != nullptr ? error->std::runtime_error::what() : exception.what();
  constexpr std::string_view kCheck = ") is false: ";
  if (const auto end = text.find(kCheck); text.starts_with("Check failed") && end != std::string::npos)
    text.erase(0, end + kCheck.size());
  constexpr std::size_t kMostBytes = 300;
  if (text.size() > kMostBytes) text.resize(kMostBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

xgrammar::Grammar parsed(const Grammar& grammar) {
  switch (grammar.kind) {
    case Grammar::Kind::json_schema:
      return xgrammar::Grammar::FromJSONSchema(
          grammar.text, grammar.any_whitespace, std::nullopt, std::nullopt, /*strict_mode=*/true,
          grammar.any_whitespace ? std::optional(kMostWhitespace) : std::nullopt);
    case Grammar::Kind::regex:
      return xgrammar::Grammar::FromRegex(grammar.text);
    case Grammar::Kind::ebnf:
      break;
  }
  return xgrammar::Grammar::FromEBNF(grammar.text);
}

class XgrammarEngine : public GrammarEngine {
 public:
  explicit XgrammarEngine(const std::vector<std::string>& token_bytes)
      : words_((token_bytes.size() + 31) / 32),
        // One thread, and no cache of its own: ours is bounded, and failures are not kept.
        compiler_(xgrammar::TokenizerInfo(token_bytes, xgrammar::VocabType::RAW,
                                          static_cast<int>(token_bytes.size()), std::vector<std::int32_t>()),
                  1, false) {}

  Result compile(const Grammar& grammar, std::int64_t work) const override {
    Result result;
    run_on_big_stack([&] { result = compile_here(grammar, work); });
    return result;
  }

 private:
  Result compile_here(const Grammar& grammar, std::int64_t work) const {
    try {
      work_left = work;
      const xgrammar::Grammar rules = parsed(grammar);
      auto compiled = xgrammar::GrammarCompiler(compiler_).CompileGrammar(rules);
      if (const std::string warning = take_xgrammar_warning(); !warning.empty()) fail(warning);
      Result result{.constraint = nullptr, .bytes = compiled.MemorySizeBytes()};
      result.constraint = std::make_shared<CompiledConstraint>(std::move(compiled));
      check_beginning(*result.constraint);
      return result;
    } catch (const std::bad_alloc&) {
      fail("the grammar takes too much memory");
    } catch (const Error&) {
      throw;
    } catch (const std::exception& exception) {
      if (work_left < 0) fail("the grammar is too large or too ambiguous");
      fail(reason(exception));
    }
  }

  void check_beginning(const Constraint& constraint) const {
    const auto text = constraint.start();
    std::vector<std::uint32_t> allowed(words_);
    text->fill(allowed);
    if (text->complete() || std::any_of(allowed.begin(), allowed.end(), [](auto word) { return word != 0; }))
      return;
    fail("no text fits the grammar: ", text->error());
  }

  std::size_t words_;
  xgrammar::GrammarCompiler compiler_;
};

}  // namespace

bool has_grammar_engine() { return true; }

std::unique_ptr<const GrammarEngine> make_grammar_engine(const std::vector<std::string>& token_bytes) {
  return std::make_unique<XgrammarEngine>(token_bytes);
}

}  // namespace asynct
