#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/step_batch.h"

namespace asynct {

/// What is left of a batch after the last layer's keys and values are written: only the rows whose final
/// hidden state is wanted. A prompt then costs the last layer's attention and feed-forward for one row.
/// Neighbouring rows of a sequence stay together; by the reduction-order contract no result changes.
class TailBatch {
 public:
  void build(const AttentionConfig& config, const StepBatch& batch, int threads);

  const StepBatch& batch() const { return view_; }
  const AttentionPlan& plan() const { return plan_; }

  /// source()[i]: row of the full batch that tail row i is. result()[i]: index among batch.logits_rows.
  std::span<const std::int32_t> source() const { return source_; }
  std::span<const std::int32_t> result() const { return result_; }

 private:
  struct Run {  // neighbouring wanted rows of one sequence
    std::int32_t sequence;
    std::int32_t first_wanted;  // index among logits_rows
    std::int32_t rows;
  };
  void append(const StepBatch& batch, const Run& run);

  std::vector<Run> runs_;
  std::vector<std::int32_t> source_, result_, tokens_, positions_, query_start_, context_length_,
      block_table_;
  StepBatch view_;
  AttentionPlan plan_;
};

}  // namespace asynct
