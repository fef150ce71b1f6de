#pragma once

#include "asynct/base/thread_pool.h"
#include "asynct/engine/model_runner.h"
#include "asynct/model/decoder.h"

namespace asynct {

/// A decoder and its KV cache on the CPU.
class CpuRunner : public ModelRunner {
 public:
  struct Options {
    int threads = 1;
    Isa isa = Isa::scalar;
    Precision precision = Precision::fp32;
    std::int64_t max_rows = 1024;
    std::int32_t block_size = 16;
    std::size_t kv_bytes = 0;  // rounded down to whole blocks
  };
  /// Errors: those of the loaders; a cache of less than one block.
  CpuRunner(const std::string& dir, const Options& options);

  std::int64_t vocabulary() const override { return decoder_.head().vocabulary(); }
  std::int64_t max_length() const override { return decoder_.config().max_positions; }
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void forward(const StepBatch& batch) override { hidden_ = decoder_.forward(batch, cache_); }
  void score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) override;
  void greedy(std::int32_t first, std::span<std::int32_t> tokens) override;
  void logits(std::int32_t row, std::span<float> logits) override;

  std::int64_t max_rows() const { return max_rows_; }
  const Decoder& decoder() const { return decoder_; }
  const KvCache& cache() const { return cache_; }

 private:
  ThreadPool pool_;
  OpContext context_;
  Decoder decoder_;
  KvCache cache_;
  ConstMatrix hidden_;
  std::int64_t max_rows_;
};

}  // namespace asynct
