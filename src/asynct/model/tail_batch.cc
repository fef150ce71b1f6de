#include "asynct/model/tail_batch.h"

#include <algorithm>

#include "asynct/base/reserve.h"

namespace asynct {

void TailBatch::build(const AttentionConfig& config, const StepBatch& batch, int threads) {
  runs_.clear();
  std::int32_t sequence = 0;
  for (std::size_t i = 0; i < batch.logits_rows.size(); ++i) {
    const std::int32_t row = batch.logits_rows[i];
    while (row >= batch.query_start[static_cast<std::size_t>(sequence) + 1]) ++sequence;
    const bool continues =
        !runs_.empty() && runs_.back().sequence == sequence && batch.logits_rows[i - 1] + 1 == row;
    if (continues)
      ++runs_.back().rows;
    else
      runs_.push_back({sequence, static_cast<std::int32_t>(i), 1});
  }

  source_.clear();
  result_.clear();
  tokens_.clear();
  positions_.clear();
  query_start_.assign(1, 0);
  context_length_.clear();
  block_table_.clear();
  reserve_at_least(block_table_, runs_.size() * static_cast<std::size_t>(
                                                    std::max(batch.max_blocks, batch.expected_blocks)));
  for (const Run& run : runs_)  // one-row sequences first, as a batch must have them
    if (run.rows == 1) append(batch, run);
  for (const Run& run : runs_)
    if (run.rows > 1) append(batch, run);
  view_ = {.tokens = tokens_,
           .positions = positions_,
           .query_start = query_start_,
           .context_length = context_length_,
           .block_table = block_table_,
           .max_blocks = batch.max_blocks};
  plan_.build(config, view_, threads);
}

void TailBatch::append(const StepBatch& batch, const Run& run) {
  for (std::int32_t i = run.first_wanted; i < run.first_wanted + run.rows; ++i) {
    const auto row = static_cast<std::size_t>(batch.logits_rows[static_cast<std::size_t>(i)]);
    source_.push_back(static_cast<std::int32_t>(row));
    result_.push_back(i);
    tokens_.push_back(batch.tokens[row]);
    positions_.push_back(batch.positions[row]);
  }
  query_start_.push_back(static_cast<std::int32_t>(source_.size()));
  context_length_.push_back(positions_.back() + 1);
  const auto blocks = batch.blocks_of(run.sequence);
  block_table_.insert(block_table_.end(), blocks.begin(), blocks.end());
}

}  // namespace asynct
