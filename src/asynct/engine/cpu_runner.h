#pragma once

#include "asynct/base/thread_pool.h"
#include "asynct/engine/model_runner.h"
#include "asynct/model/decoder.h"
#include "asynct/model/memory_plan.h"

namespace asynct {

/// A decoder and its KV cache on the CPU.
class CpuRunner : public ModelRunner {
 public:
  struct Options {
    int threads = 1;
    Isa isa = Isa::scalar;
    Precision precision = Precision::fp32;
    std::int64_t max_rows = 1024;  // asked; where memory is short the runner takes fewer
    std::int32_t max_sequences = 256;
    std::int32_t block_size = 16;
    std::size_t kv_bytes = 0;  // rounded down to whole blocks; 0: see RunSize
  };
  /// Sizes everything that a step takes (model/memory_plan.h), then loads the weights. Errors: those of the
  /// loaders; a run that does not fit the memory that this process may still take.
  CpuRunner(const std::string& dir, const Options& options);
  CpuRunner(ModelSource source, const Options& options);

  std::int64_t vocabulary() const override { return decoder_.head().vocabulary(); }
  std::int64_t max_length() const override { return decoder_.config().max_positions; }
  std::vector<FeedForward::Counts> neuron_counts() const override { return decoder_.layer_neuron_counts(); }
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void forward(const StepBatch& batch) override { hidden_ = decoder_.forward(batch, cache_); }
  void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) override;
  void greedy(std::span<const std::int32_t> rows, std::span<std::int32_t> tokens) override;
  void logits(std::span<const std::int32_t> rows, std::span<float> logits) override;

  std::int64_t max_rows() const { return plan_.batch_tokens; }
  const MemoryPlan& memory() const { return plan_; }
  const OpContext& context() const { return context_; }
  const Decoder& decoder() const { return decoder_; }
  const KvCache& cache() const { return cache_; }

 private:
  ConstMatrix hidden_rows(std::span<const std::int32_t> rows);

  ThreadPool pool_;
  OpContext context_;
  MemoryPlan plan_;
  Decoder decoder_;
  KvCache cache_;
  ConstMatrix hidden_;
  std::vector<float> gathered_;  // hidden rows that are no neighbours
};

}  // namespace asynct
