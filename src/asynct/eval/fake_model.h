#pragma once

#include <functional>
#include <string>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/engine/language_model.h"

// Models for tests: answers come from functions of the texts, over a tokenizer whose tokens are bytes.
namespace asynct {

/// 256 tokens, one a byte (id = byte), and <|endoftext|> = 256 as BOS and EOS.
Tokenizer byte_tokenizer(bool adds_bos = false);

class FakeModel : public LanguageModel {
 public:
  using ScoreFunction =
      std::function<SequenceScore(const std::string& context, const std::string& continuation)>;
  using TextFunction = std::function<std::string(const std::string& prompt)>;

  explicit FakeModel(ScoreFunction score, TextFunction text = nullptr)
      : score_(std::move(score)), text_(std::move(text)), tokenizer_(byte_tokenizer()) {}

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  std::int64_t max_length() const override { return max_length_; }

  bool score(std::span<const ScoreRequest> requests,
             FunctionRef<void(std::size_t, const SequenceScore&)> done) override {
    ++calls_;
    for (std::size_t i = requests.size(); i-- > 0;) {  // out of order: callers must not care
      if (stops_after_ >= 0 && answered_ >= stops_after_) return false;
      const ScoreRequest& request = requests[i];
      if (request.score_begin < 1 || request.score_begin >= static_cast<std::int64_t>(request.tokens.size()))
        throw Error("score_begin outside the tokens");
      if (static_cast<std::int64_t>(request.tokens.size()) > max_length_ + 1) throw Error("request too long");
      const auto all = std::span(request.tokens);
      const auto begin = static_cast<std::size_t>(request.score_begin);
      done(i, score_(text(all.first(begin)), text(all.subspan(begin))));
      ++answered_;
      tokens_ += static_cast<std::int64_t>(all.size());
    }
    return true;
  }

  bool generate(std::span<const GenerateRequest> requests,
                FunctionRef<void(std::size_t, const GeneratedText&)> done) override {
    ++calls_;
    for (std::size_t i = requests.size(); i-- > 0;) {
      if (stops_after_ >= 0 && answered_ >= stops_after_) return false;
      const auto size = static_cast<std::int64_t>(requests[i].prompt.size());
      if (size + requests[i].max_new_tokens > max_length_) throw Error("prompt too long");
      std::string made = text_(text(requests[i].prompt));
      for (const std::string& stop : requests[i].stop) made = made.substr(0, made.find(stop));
      done(i, {made, static_cast<std::int64_t>(made.size())});
      ++answered_;
      tokens_ += size;
    }
    return true;
  }

  std::int64_t tokens_processed() const override { return tokens_; }

  std::int64_t max_length_ = 1 << 20;
  std::int64_t stops_after_ = -1;  // answers before an interrupt; below 0: none
  std::int64_t answered_ = 0;
  int calls_ = 0;

 private:
  std::string text(std::span<const Token> tokens) const {
    std::string out;
    for (const Token token : tokens)
      out += token == 256 ? "<|endoftext|>" : std::string(1, static_cast<char>(token));
    return out;
  }

  ScoreFunction score_;
  TextFunction text_;
  Tokenizer tokenizer_;
  std::int64_t tokens_ = 0;
};

}  // namespace asynct
