#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "asynct/engine/cpu_runner.h"
#include "asynct/text/token.h"

namespace asynct {

/// The logits that every context was given: the first time they are kept (as a hash), from then on they must
/// be the same bits.
class LogitsLedger {
 public:
  /// Records a test failure when other logits followed the same context before.
  void record(std::uint64_t context, std::int64_t length, std::span<const float> logits);

  std::size_t contexts() const { return logits_.size(); }
  std::size_t repeated() const { return repeated_; }  // contexts that came again

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> logits_;  // hash of the context: hash of the logits
  std::size_t repeated_ = 0;
};

/// A CpuRunner that enters the logits of every wanted row into a ledger. Which tokens precede a row it reads
/// from a cache of tokens of its own, through the batch's block table, as attention reads keys.
class RecordingRunner : public CpuRunner {
 public:
  RecordingRunner(const std::string& dir, const Options& options, LogitsLedger& ledger);

  void copy_blocks(std::span<const BlockCopy> copies) override;
  void forward(const StepBatch& batch) override;

  /// Steps in which attention split a decode row's keys over several units.
  int split_steps() const { return split_steps_; }

 private:
  void record_rows(const StepBatch& batch);
  bool splits(const StepBatch& batch);

  LogitsLedger& ledger_;
  std::int32_t block_size_;
  int threads_;
  std::vector<Token> tokens_;  // by slot
  std::vector<float> logits_;
  AttentionPlan plan_;
  int split_steps_ = 0;
};

}  // namespace asynct
