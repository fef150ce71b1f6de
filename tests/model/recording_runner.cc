#include "recording_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace asynct {
namespace {

constexpr std::uint64_t kHashSeed = 14695981039346656037U;

std::uint64_t mix(std::uint64_t hash, std::uint32_t value) {
  hash = (hash ^ value) * 1099511628211U;
  return hash ^ (hash >> 29);
}

}  // namespace

void LogitsLedger::record(std::uint64_t context, std::int64_t length, std::span<const float> logits) {
  std::uint64_t hash = kHashSeed;
  for (const float logit : logits) hash = mix(hash, std::bit_cast<std::uint32_t>(logit));
  const auto [known, fresh] = logits_.try_emplace(context, hash);
  if (fresh) return;
  ++repeated_;
  EXPECT_EQ(known->second, hash) << "other logits after the same " << length << " tokens";
}

RecordingRunner::RecordingRunner(const std::string& dir, const Options& options, LogitsLedger& ledger)
    : CpuRunner(dir, options),
      ledger_(ledger),
      block_size_(options.block_size),
      threads_(options.threads),
      tokens_(static_cast<std::size_t>(cache().blocks() * options.block_size), -1),
      logits_(static_cast<std::size_t>(vocabulary())) {}

void RecordingRunner::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies)
    std::copy_n(tokens_.begin() + copy.from * block_size_, block_size_,
                tokens_.begin() + copy.to * block_size_);
  CpuRunner::copy_blocks(copies);
}

void RecordingRunner::forward(const StepBatch& batch) {
  for (std::size_t row = 0; row < batch.tokens.size(); ++row)
    if (batch.slot_mapping[row] >= 0)
      tokens_[static_cast<std::size_t>(batch.slot_mapping[row])] = batch.tokens[row];
  split_steps_ += splits(batch);
  CpuRunner::forward(batch);
  record_rows(batch);
}

void RecordingRunner::record_rows(const StepBatch& batch) {
  std::size_t wanted = 0;
  for (std::int64_t s = 0; s < batch.sequences(); ++s) {
    const auto blocks = batch.blocks_of(s);
    const auto end = batch.query_start[static_cast<std::size_t>(s) + 1];
    std::uint64_t context = kHashSeed;
    std::int32_t position = 0;
    for (; wanted < batch.logits_rows.size() && batch.logits_rows[wanted] < end; ++wanted) {
      const auto last = batch.positions[static_cast<std::size_t>(batch.logits_rows[wanted])];
      for (; position <= last; ++position) {
        const auto block = blocks[static_cast<std::size_t>(position / block_size_)];
        const Token token = tokens_[static_cast<std::size_t>(block * block_size_ + position % block_size_)];
        context = mix(context, static_cast<std::uint32_t>(token));
      }
      const auto row = static_cast<std::int32_t>(wanted);
      logits({&row, 1}, logits_);
      ledger_.record(context, position, logits_);
    }
  }
}

bool RecordingRunner::splits(const StepBatch& batch) {
  const KvShape& shape = cache().shape();
  // Units are cut by KV head; how many query heads share one only sets the height of a prefill tile.
  plan_.build({.heads = shape.kv_heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim}, batch,
              threads_);
  return !plan_.reductions.empty();
}

}  // namespace asynct
