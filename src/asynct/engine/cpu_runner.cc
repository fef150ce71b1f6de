#include "asynct/engine/cpu_runner.h"

#include <algorithm>

#include "asynct/base/error.h"

namespace asynct {
namespace {

std::int32_t whole_blocks(const KvShape& shape, std::size_t bytes) {
  const std::size_t blocks = bytes / shape.block_bytes();
  if (blocks < 1)
    fail("KV cache: ", bytes, " bytes hold no block of ", shape.block_bytes(), " bytes (", shape.block_size,
         " tokens); give it more");
  constexpr std::size_t kMostBlocks = std::size_t{1} << 30;
  return static_cast<std::int32_t>(std::min(blocks, kMostBlocks));
}

}  // namespace

CpuRunner::CpuRunner(const std::string& dir, const Options& options)
    : pool_(options.threads),
      context_(pool_, options.isa, options.precision),
      decoder_(context_, load_config(dir), Checkpoint(dir), options.max_rows),
      cache_(decoder_.kv_shape(options.block_size),
             whole_blocks(decoder_.kv_shape(options.block_size), options.kv_bytes)),
      max_rows_(options.max_rows) {}

void CpuRunner::copy_blocks(std::span<const BlockCopy> copies) {
  // Targets are fresh blocks, so no copy depends on another.
  pool_.parallel_for(static_cast<std::int64_t>(copies.size()), 4,
                     [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const BlockCopy& copy = copies[static_cast<std::size_t>(i)];
                         cache_.copy_block(copy.from, copy.to);
                       }
                     });
}

void CpuRunner::score(std::span<const ScoreTarget> targets, std::span<TokenScore> scores) {
  decoder_.head().score(context_, hidden_, targets, scores);
}

void CpuRunner::greedy(std::int32_t first, std::span<std::int32_t> tokens) {
  decoder_.head().greedy(context_, hidden_.slice_rows(first, static_cast<std::int64_t>(tokens.size())),
                         tokens);
}

void CpuRunner::logits(std::int32_t row, std::span<float> logits) {
  decoder_.head().logits(context_, hidden_.slice_rows(row, 1),
                         Matrix(logits.data(), 1, static_cast<std::int64_t>(logits.size())));
}

}  // namespace asynct
