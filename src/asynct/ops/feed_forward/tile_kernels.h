#pragma once

#include "asynct/ops/feed_forward/neuron_kernels.h"

// Many rows against a tile of neurons widened once, and the table of all kernels.
namespace asynct::feed_forward {
namespace {

constexpr int kTileVecs = kTileColumns / Vec::kLanes;
constexpr Rows tile_rows(const float* tile) { return {tile, kTileColumns * sizeof(float)}; }

std::uint32_t find_active_in_tile(const float* gates, std::int64_t stride, std::int64_t rows,
                                  std::int64_t neurons, ActiveLists lists) {
  std::uint32_t all = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const gate = gates + r * stride;
    std::int32_t* const index = lists.index + r * lists.room;
    float* const h = lists.h + r * lists.room;
    std::uint32_t bits = take_active(gate, neurons, 0, index, h);
    std::int64_t found = __builtin_popcount(bits);
    if (neurons > kLanes) {
      const std::uint32_t more =
          take_active(gate + kLanes, neurons - kLanes, kLanes, index + found, h + found);
      bits |= more << kLanes;
      found += __builtin_popcount(more);
    }
    all |= bits;
    lists.counts[r] = found;
    // The last one again: dots go by fours.
    for (int j = 0; j < 3; ++j) index[found + j] = found > 0 ? index[found - 1] : 0;
  }
  return all;
}

template <class Row>
void widen_tile(const Rows& rows, std::uint32_t neurons, std::int64_t first, std::int64_t columns,
                float* tile) {
  for (; neurons != 0; neurons &= neurons - 1) {
    const int f = __builtin_ctz(neurons);
    const char* group = row_of(rows, f) + first * Row::kBytes;
    float* const to = tile + f * kTileColumns;
    for (std::int64_t c = 0; c < columns; c += kGroup, group += kGroup * Row::kBytes)
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVecs; ++v) Row::load(group, v).store(to + c + v * Vec::kLanes);
  }
}

// Dot products of four neurons with one row, by lanes. kHeld: the row is `held` in registers and has
// kTileColumns elements.
template <bool kHeld>
[[gnu::always_inline]] inline void dot_four(const Vec* held, const float* x, std::int64_t columns,
                                            const float* tile, const std::int32_t* index,
                                            Vec (&sum)[4][kVecs]) {
  const float* row[4];
  for (int j = 0; j < 4; ++j) row[j] = tile + index[j] * std::int64_t{kTileColumns};
  if constexpr (kHeld) {
#pragma GCC unroll 32
    for (int k = 0; k < kTileVecs; ++k)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        sum[j][k % kVecs] = Vec::fma(Vec::load(row[j] + k * Vec::kLanes), held[k], sum[j][k % kVecs]);
  } else {
    for (std::int64_t k = 0; k < columns; k += kLanes)
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        const Vec input = Vec::load(x + k + v * Vec::kLanes);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j)
          sum[j][v] = Vec::fma(Vec::load(row[j] + k + v * Vec::kLanes), input, sum[j][v]);
      }
  }
}

template <bool kHeld>
void dot_row(const TileDots& job, const float* x, const std::int32_t* index, std::int64_t count, float* sums,
             float* h) {
  Vec held[kHeld ? kTileVecs : 1];
  if constexpr (kHeld)
#pragma GCC unroll 32
    for (int k = 0; k < kTileVecs; ++k) held[k] = Vec::load(x + k * Vec::kLanes);
  const std::int64_t columns = job.columns;
  const float* const tile = job.tile;
  const bool first = job.first;
  const bool last = job.last;
  for (std::int64_t j = 0; j < count; j += 4, sums += 4 * kLanes) {
    Vec sum[4][kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < 4 * kVecs; ++i)
      sum[i / kVecs][i % kVecs] = first ? Vec::zero() : Vec::load(sums + i * Vec::kLanes);
    dot_four<kHeld>(held, x, columns, tile, index + j, sum);
    if (last)
      multiply_by_sums(sum, h + j);
    else
#pragma GCC unroll 8
      for (int i = 0; i < 4 * kVecs; ++i) sum[i / kVecs][i % kVecs].store(sums + i * Vec::kLanes);
  }
}

void tile_dots(const TileDots& job, ActiveLists lists) {
  constexpr bool kFitsRegisters = Vec::kLanes == 16;
  for (std::int64_t r = 0; r < job.rows; ++r) {
    const float* const x = job.x + r * job.stride;
    const std::int32_t* const index = lists.index + r * lists.room;
    float* const h = lists.h + r * lists.room;
    float* const sums = job.sums + r * kTileNeurons * kLanes;
    if (kFitsRegisters && job.columns == kTileColumns)
      dot_row<kFitsRegisters>(job, x, index, lists.counts[r], sums, h);
    else
      dot_row<false>(job, x, index, lists.counts[r], sums, h);
    if (job.last && job.round) round_values(h, lists.counts[r]);
  }
}

// kGroups groups of columns of a tile in registers over all neurons.
template <int kGroups>
void accumulate_columns(const float* h, const Rows& rows, const std::int32_t* index, std::int64_t count,
                        std::int64_t first, std::int64_t columns, bool accumulate, float* y) {
  Vec sum[kGroups * kGroupVecs];
  const bool whole = columns >= kGroups * kGroup;
#pragma GCC unroll 16
  for (int v = 0; v < kGroups * kGroupVecs; ++v) {
    const std::int64_t left = columns - v * Vec::kLanes;
    sum[v] = !accumulate || left <= 0       ? Vec::zero()
             : whole || left >= Vec::kLanes ? Vec::load(y + v * Vec::kLanes)
                                            : Vec::load_first(y + v * Vec::kLanes, left);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    const char* const row = row_of(rows, index[j]) + first * F32Row::kBytes;
    const Vec factor = Vec::broadcast(h + j);
#pragma GCC unroll 16
    for (int v = 0; v < kGroups * kGroupVecs; ++v)
      sum[v] = Vec::fma(factor, F32Row::load(row + v / kGroupVecs * kGroup * F32Row::kBytes, v % kGroupVecs),
                        sum[v]);
  }
#pragma GCC unroll 16
  for (int v = 0; v < kGroups * kGroupVecs; ++v) {
    const std::int64_t left = columns - v * Vec::kLanes;
    if (whole || left >= Vec::kLanes)
      sum[v].store(y + v * Vec::kLanes);
    else if (left > 0)
      sum[v].store_first(y + v * Vec::kLanes, left);
  }
}

// Blocks of kGroups groups, the rest in halves of that.
template <int kGroups>
void accumulate_blocks(const float* h, const Rows& rows, const std::int32_t* index, std::int64_t count,
                       std::int64_t first, std::int64_t columns, bool accumulate, float* y) {
  constexpr std::int64_t kColumns = kGroups * kGroup;
  for (; columns >= kColumns || (kGroups == 1 && columns > 0);
       columns -= kColumns, first += kColumns, y += kColumns)
    accumulate_columns<kGroups>(h, rows, index, count, first, columns, accumulate, y);
  if constexpr (kGroups > 1)
    accumulate_blocks<kGroups / 2>(h, rows, index, count, first, columns, accumulate, y);
}

// Half the registers hold sums: 256 columns with AVX-512, 64 with AVX2.
constexpr int kSumGroups = Vec::kLanes == 16 ? 8 : 2;

void tile_accumulate(const float* tile, std::int64_t columns, std::int64_t rows, ActiveLists lists,
                     bool accumulate, float* y, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    if (lists.counts[r] > 0 || !accumulate)
      accumulate_blocks<kSumGroups>(lists.h + r * lists.room, tile_rows(tile), lists.index + r * lists.room,
                                    lists.counts[r], 0, columns, accumulate, y + r * stride);
}

constexpr KernelTable make_table() {
  return {.find_active = find_active,
          .dots = {dots<F32Row>, dots<Bf16Row>, dots<F16Row>},
          .round_values = round_values,
          .accumulate_rows = {accumulate_rows<F32Row>, accumulate_rows<Bf16Row>, accumulate_rows<F16Row>},
          .find_active_in_tile = find_active_in_tile,
          .widen_tile = {widen_tile<F32Row>, widen_tile<Bf16Row>, widen_tile<F16Row>},
          .tile_dots = tile_dots,
          .tile_accumulate = tile_accumulate,
          .silu_product = silu_product};
}

}  // namespace
}  // namespace asynct::feed_forward
