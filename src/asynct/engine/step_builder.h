#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asynct/kv/sequence.h"
#include "asynct/ops/step_batch.h"

namespace asynct {

/// Fills the arrays of a StepBatch, sequence after sequence. Its memory is kept from step to step.
class StepBuilder {
 public:
  /// Forgets the previous step.
  void clear();

  /// Adds rows of one sequence: `tokens` are those from position `begin` on, and have places in it
  /// (Sequence::extend). Rows before position `written` are in the cache already and are not written again.
  /// Sequences of one row must be added before longer ones. Returns the index of the first row.
  std::int32_t add(const Sequence& sequence, std::int64_t begin, std::span<const std::int32_t> tokens,
                   std::int64_t written = 0);

  /// Asks for the final hidden state of a row; rows ascending. Returns its index among the hidden rows.
  std::int32_t want(std::int32_t row);

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens_.size()); }

  /// The batch; valid until the next clear() or add(). `expected_blocks`: pages that a sequence may come to
  /// have, for which there is memory from now on.
  StepBatch batch(std::int64_t expected_blocks = 0);

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int32_t> query_start_{0};
  std::vector<std::int32_t> context_length_;
  std::vector<std::int32_t> block_table_;
  std::vector<std::int64_t> slot_mapping_;
  std::vector<std::int32_t> logits_rows_;
  std::vector<std::span<const std::int32_t>> blocks_;  // of each sequence, until batch() lays out the table
};

}  // namespace asynct
