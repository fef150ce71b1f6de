#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/kv/sequence.h"
#include "asynct/ops/feed_forward/feed_forward.h"
#include "asynct/ops/head/head.h"
#include "asynct/ops/step_batch.h"

namespace asynct {

/// What the engine asks of a model on a device: run a step over the paged cache, then read its result. The
/// CPU and the CUDA runner differ below this line only; tests put a fake here.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  virtual std::int64_t vocabulary() const = 0;
  /// Longest context in tokens.
  virtual std::int64_t max_length() const = 0;

  /// Copies whole blocks of the cache, before the writes of the next step.
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;

  /// Neurons of ReGLU seen and active so far, layer by layer; empty without any. From any thread.
  virtual std::vector<FeedForward::Counts> neuron_counts() const { return {}; }

  /// One forward pass; keeps the final hidden states of batch.logits_rows, row i of them below, until the
  /// next.
  virtual void forward(const StepBatch& batch) = 0;

  // Of the hidden rows; `rows` ascending and not empty.
  virtual void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) = 0;
  /// argmax of each row; -1 where the logits hold a NaN.
  virtual void greedy(std::span<const std::int32_t> rows, std::span<std::int32_t> tokens) = 0;
  /// [rows.size(), vocabulary]
  virtual void logits(std::span<const std::int32_t> rows, std::span<float> logits) = 0;
};

}  // namespace asynct
