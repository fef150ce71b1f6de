#include "asynct/engine/cpu_runner.h"

#include <algorithm>
#include <cassert>

#include "asynct/base/error.h"

namespace asynct {
namespace {

RunSize run_size(const CpuRunner::Options& options) {
  return {.batch_tokens = options.max_rows,
          .max_sequences = options.max_sequences,
          .block_size = options.block_size,
          .kv_bytes = static_cast<std::int64_t>(options.kv_bytes)};
}

}  // namespace

CpuRunner::CpuRunner(const std::string& dir, const Options& options) : CpuRunner(open_source(dir), options) {}

// Threads come before the plan: their stacks are memory too. Callers may start as many again.
CpuRunner::CpuRunner(ModelSource source, const Options& options)
    : pool_(options.threads),
      context_(pool_, options.isa, options.precision),
      plan_(plan_memory(context_, source.config, source.weights, run_size(options),
                        memory_budget(options.threads))),
      decoder_(context_, std::move(source), plan_.batch_tokens),
      cache_(kv_shape(decoder_.config(), options.precision, options.block_size), plan_.blocks) {
  context_.reserve(plan_.scratch);
}

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

void CpuRunner::greedy(std::span<const std::int32_t> rows, std::span<std::int32_t> tokens) {
  decoder_.head().greedy(context_, hidden_rows(rows), tokens);
}

void CpuRunner::logits(std::span<const std::int32_t> rows, std::span<float> logits) {
  decoder_.head().logits(context_, hidden_rows(rows), Matrix(logits.data(), std::ssize(rows), vocabulary()));
}

ConstMatrix CpuRunner::hidden_rows(std::span<const std::int32_t> rows) {
  assert(!rows.empty() && std::is_sorted(rows.begin(), rows.end()) && rows.back() < hidden_.rows);
  const std::int64_t count = std::ssize(rows);
  if (rows.back() - rows.front() == count - 1) return hidden_.slice_rows(rows.front(), count);
  gathered_.resize(static_cast<std::size_t>(count * hidden_.cols));
  const Matrix gathered(gathered_.data(), count, hidden_.cols);
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(hidden_.row(rows[static_cast<std::size_t>(i)]), hidden_.cols, gathered.row(i));
  return gathered;
}

}  // namespace asynct
