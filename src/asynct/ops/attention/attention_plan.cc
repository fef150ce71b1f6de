#include <algorithm>
#include <cassert>

#include "asynct/base/reserve.h"
#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/kernels.h"

namespace asynct {
namespace {

/// A split below this many chunks costs more in halo and partial sums than a thread gains.
constexpr std::int64_t kMinSplitChunks = 4;

/// Pieces of work a thread should get, so that the last one to finish is not late by much.
constexpr std::int64_t kPiecesPerThread = 4;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t cost(const AttentionPlan::Unit& unit) {
  return std::int64_t{unit.row_end - unit.row_begin} * (unit.chunk_end - unit.chunk_begin);
}

bool is_decode(const AttentionPlan::Unit& unit, const StepBatch& batch) {
  const auto s = static_cast<std::size_t>(unit.sequence);
  return batch.query_start[s + 1] - batch.query_start[s] == 1;
}

struct Rows {
  std::int32_t count;
  std::int32_t context;
};

Rows rows_of(const StepBatch& batch, std::int64_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  const Rows rows = {batch.query_start[s + 1] - batch.query_start[s], batch.context_length[s]};
  assert(rows.count >= 0 && rows.count <= rows.context);
  return rows;
}

}  // namespace

std::int64_t AttentionPlan::most_partial_slots(int threads, std::int64_t max_context) {
  // A unit is split when its chunks are more than a piece, total / (threads * kPiecesPerThread); fewer than
  // threads * kPiecesPerThread units can be.
  return threads == 1 ? 0 : threads * kPiecesPerThread * divide_up(max_context, kAttentionChunk);
}

void AttentionPlan::build(const AttentionConfig& config, const StepBatch& batch, int threads) {
  units.clear();
  reductions.clear();
  partial_slots = 0;
  const std::int32_t group = config.heads / config.kv_heads;
  const std::int32_t tile_rows = std::max(1, attention::kUnitQueries / group);

  std::int64_t total = 0;
  for (std::int64_t s = 0; s < batch.sequences(); ++s) {
    const Rows rows = rows_of(batch, s);
    total += std::int64_t{rows.count} * divide_up(rows.context, kAttentionChunk) * config.kv_heads;
  }
  const std::int64_t piece =
      threads == 1 ? total : std::max(kMinSplitChunks, divide_up(total, threads * kPiecesPerThread));
  // Splits are fewer than threads * kPiecesPerThread, and so are their pieces beside a unit each: with room
  // for all, longer contexts allocate nothing.
  const auto splits = static_cast<std::size_t>(threads * kPiecesPerThread);
  reserve_at_least(units, static_cast<std::size_t>(batch.sequences() * config.kv_heads) + splits);
  reserve_at_least(reductions, splits);

  const auto add_decode = [&](Unit unit) {
    const std::int32_t chunks = unit.chunk_end;
    if (chunks <= piece) return units.push_back(unit);
    reductions.push_back({unit.sequence, unit.kv_head, 0, 1, partial_slots, chunks});
    for (std::int32_t begin = 0; begin < chunks; begin = unit.chunk_end) {
      unit.chunk_begin = begin;
      unit.chunk_end = static_cast<std::int32_t>(std::min<std::int64_t>(begin + piece, chunks));
      unit.partial = partial_slots + begin;
      units.push_back(unit);
    }
    partial_slots += chunks;
  };
  for (std::int32_t s = 0; s < batch.sequences(); ++s) {
    const Rows rows = rows_of(batch, s);
    for (std::int32_t head = 0; head < config.kv_heads; ++head)
      for (std::int32_t begin = 0; begin < rows.count; begin += tile_rows) {
        const std::int32_t end = std::min(begin + tile_rows, rows.count);
        const std::int32_t keys = rows.context - rows.count + end;
        const auto chunks = static_cast<std::int32_t>(divide_up(keys, kAttentionChunk));
        const Unit unit = {.sequence = s,
                           .kv_head = head,
                           .row_begin = begin,
                           .row_end = end,
                           .chunk_begin = 0,
                           .chunk_end = chunks};
        rows.count == 1 ? add_decode(unit) : units.push_back(unit);
      }
  }
  std::sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) {
    const bool a_first = is_decode(a, batch);
    const bool b_first = is_decode(b, batch);
    return a_first != b_first ? a_first : cost(a) > cost(b);
  });
}

}  // namespace asynct
