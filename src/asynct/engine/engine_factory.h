#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "asynct/engine/engine.h"
#include "asynct/engine/language_model.h"
#include "asynct/model/inspect.h"
#include "asynct/ops/context.h"

namespace asynct {

/// How to load and run a model; what the command line offers.
struct ModelOptions {
  std::string device = "cpu";
  Precision precision = Precision::fp32;
  int threads = 0;                   // 0: all cores this process may use
  std::int64_t batch_tokens = 1024;  // rows a step; fewer where memory is short
  std::int32_t max_sequences = 256;  // sequences a step
  std::int64_t kv_bytes = 0;         // size of the KV cache; 0: see RunSize in model/memory_plan.h
};

/// A model without its tokenizer, ready for an Engine.
struct OpenedModel {
  std::unique_ptr<ModelRunner> runner;
  EngineOptions engine;
  std::vector<Token> end_tokens;  // as the checkpoint says; may be empty
  ModelReport report;
  Isa isa = Isa::scalar;
  int threads = 1;
};
OpenedModel open_runner(const std::string& dir, const ModelOptions& options);

/// Error when the tokenizer of `dir` has tokens that the model does not know.
void check_vocabulary(const std::string& dir, const OpenedModel& model, const Tokenizer& tokenizer);
/// The checkpoint's end tokens, else the tokenizer's; may be empty.
std::vector<Token> end_tokens_of(const OpenedModel& model, const Tokenizer& tokenizer);

/// Loads a checkpoint directory and its tokenizer. Errors: whatever the loaders find, an unknown device, and
/// a model that does not fit the memory (with numbers).
std::unique_ptr<LanguageModel> open_model(const std::string& dir, const ModelOptions& options);

}  // namespace asynct
