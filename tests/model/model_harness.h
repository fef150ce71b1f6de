#pragma once

#include <string>
#include <vector>

#include "asynct/engine/cpu_runner.h"
#include "asynct/engine/engine_factory.h"
#include "asynct/engine/step_builder.h"
#include "asynct/kv/sequence.h"
#include "asynct/text/token.h"

namespace asynct {

/// Drives a CpuRunner step by step, one level below the engine: whoever tests the model says what is in a
/// step.
class ModelHarness {
 public:
  ModelHarness(const std::string& dir, const CpuRunner::Options& options)
      : runner_(dir, options), pool_(runner_.cache().blocks()), block_size_(options.block_size) {}

  CpuRunner& runner() { return runner_; }
  Sequence new_sequence() { return Sequence(pool_, block_size_); }
  BlockPool& pool() { return pool_; }

  struct Part {
    Sequence* sequence;
    std::vector<Token> tokens;  // appended in this step
  };
  /// One step over several sequences, in the order given (one-row parts first). Returns the logits of each
  /// part's wanted rows, [part][i * vocabulary + token]: rows 0, `every`, 2 * every ...
  std::vector<std::vector<float>> step(const std::vector<Part>& parts, std::size_t every = 1);

  /// Logits of all rows of a fresh sequence, `chunk` tokens a step (0: all at once).
  std::vector<float> logits_of(const std::vector<Token>& tokens, std::int64_t chunk = 0);

 private:
  CpuRunner runner_;
  BlockPool pool_;
  std::int32_t block_size_;
  StepBuilder builder_;
};

/// `count` greedy tokens after a prompt, past any end of text. Error: the engine ended sooner.
std::vector<Token> greedy_tokens(OpenedModel& model, const std::vector<Token>& prompt, std::int64_t count);

/// Kernel families that this machine can run.
std::vector<Isa> available_isas();

/// ||a - b|| / ||b||.
double relative_error(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace asynct
