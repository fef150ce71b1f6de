#pragma once

#include <memory>

#include "asynct/engine/engine.h"
#include "asynct/engine/language_model.h"

namespace asynct {

/// LanguageModel over an Engine: many requests at once, prefixes shared, text decoded and cut at stop
/// strings.
class OfflineModel : public LanguageModel {
 public:
  OfflineModel(std::unique_ptr<ModelRunner> runner, Tokenizer tokenizer, std::vector<Token> end_tokens,
               const EngineOptions& options);

  const Tokenizer& tokenizer() const override { return tokenizer_; }
  std::int64_t max_length() const override { return runner_->max_length(); }
  bool score(std::span<const ScoreRequest> requests,
             FunctionRef<void(std::size_t index, const SequenceScore& score)> done) override;
  bool generate(std::span<const GenerateRequest> requests,
                FunctionRef<void(std::size_t index, const GeneratedText& text)> done) override;
  std::int64_t tokens_processed() const override { return tokens_processed_; }

 private:
  std::unique_ptr<ModelRunner> runner_;
  Tokenizer tokenizer_;
  std::vector<Token> end_tokens_;
  EngineOptions options_;
  std::int64_t tokens_processed_ = 0;
};

}  // namespace asynct
