#include "asynct/engine/step_builder.h"

#include <algorithm>
#include <cassert>

#include "asynct/base/reserve.h"

namespace asynct {

void StepBuilder::clear() {
  tokens_.clear();
  positions_.clear();
  query_start_.assign(1, 0);
  context_length_.clear();
  block_table_.clear();
  slot_mapping_.clear();
  logits_rows_.clear();
  blocks_.clear();
}

std::int32_t StepBuilder::add(const Sequence& sequence, std::int64_t begin,
                              std::span<const std::int32_t> tokens, std::int64_t written) {
  const auto first_row = static_cast<std::int32_t>(tokens_.size());
  const std::int64_t end = begin + static_cast<std::int64_t>(tokens.size());
  assert(begin >= 0 && !tokens.empty() && end <= sequence.length());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (std::int64_t position = begin; position < end; ++position) {
    positions_.push_back(static_cast<std::int32_t>(position));
    slot_mapping_.push_back(position < written ? -1 : sequence.slot(position));
  }
  query_start_.push_back(static_cast<std::int32_t>(tokens_.size()));
  context_length_.push_back(static_cast<std::int32_t>(end));
  blocks_.push_back(sequence.blocks());
  return first_row;
}

std::int32_t StepBuilder::want(std::int32_t row) {
  assert(logits_rows_.empty() || logits_rows_.back() <= row);
  if (logits_rows_.empty() || logits_rows_.back() != row) logits_rows_.push_back(row);
  return static_cast<std::int32_t>(logits_rows_.size()) - 1;
}

StepBatch StepBuilder::batch(std::int64_t expected_blocks) {
  std::size_t widest = 0;
  for (const auto blocks : blocks_) widest = std::max(widest, blocks.size());
  const std::size_t expected = std::max(widest, static_cast<std::size_t>(expected_blocks));
  block_table_.clear();
  reserve_at_least(block_table_, blocks_.size() * expected);
  for (const auto blocks : blocks_) {
    block_table_.insert(block_table_.end(), blocks.begin(), blocks.end());
    block_table_.resize(block_table_.size() + widest - blocks.size(), 0);
  }
  return {.tokens = tokens_,
          .positions = positions_,
          .query_start = query_start_,
          .context_length = context_length_,
          .block_table = block_table_,
          .max_blocks = static_cast<std::int32_t>(widest),
          .expected_blocks = static_cast<std::int32_t>(expected),
          .slot_mapping = slot_mapping_,
          .logits_rows = logits_rows_};
}

}  // namespace asynct
