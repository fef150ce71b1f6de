#pragma once

#include <cstdint>

#include "asynct/ops/feed_forward/kernels.h"

// Kernels over neuron-major weights, written once over Vec; a unit includes a simd/math_<isa>.h and defines
// before this:
//
//   float sum_lanes(const Vec (&sum)[16 / Vec::kLanes]);  // lanes l and l + 8, then l + 4, l + 2, l + 1
//   void multiply_by_sums(const Vec (&sum)[4][16 / Vec::kLanes], float* h);  // h[j] *= sum_lanes(sum[j])
//   std::uint32_t take_active(const float* gate, std::int64_t count, std::int32_t base, std::int32_t* index,
//                             float* values);
//       // Bit i: neuron i < min(count, 16) is active; base + i and gate[i] of those, in order (room for 16).
namespace asynct::feed_forward {
namespace {

constexpr int kLanes = 16;                        // lanes of a dot product, half a group
constexpr int kVecs = kLanes / Vec::kLanes;       // vectors of them
constexpr int kGroupVecs = kGroup / Vec::kLanes;  // vectors of a group

// Vector `v` of a group of 32 elements.
struct F32Row {
  static constexpr std::int64_t kBytes = 4;
  static Vec load(const char* group, int v) {
    return Vec::load(reinterpret_cast<const float*>(group) + v * Vec::kLanes);
  }
};
struct Bf16Row {
  static constexpr std::int64_t kBytes = 2;
  static Vec load(const char* group, int v) {
    const auto* const pairs = reinterpret_cast<const std::uint16_t*>(group) + v % kVecs * 2 * Vec::kLanes;
    return v < kVecs ? Vec::load_bf16_low(pairs) : Vec::load_bf16_high(pairs);
  }
};
struct F16Row {
  static constexpr std::int64_t kBytes = 2;
  static Vec load(const char* group, int v) {
    return Vec::load_f16(reinterpret_cast<const std::uint16_t*>(group) + v * Vec::kLanes);
  }
};

const char* row_of(const Rows& rows, std::int32_t index) {
  return static_cast<const char*>(rows.data) + index * rows.row_bytes;
}

void prefetch_group(const char* group, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) prefetch(group + line);
}

std::int64_t find_active(const float* gate, std::int64_t count, std::int32_t* index, float* values) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; i += kLanes)
    found += __builtin_popcount(
        take_active(gate + i, count - i, static_cast<std::int32_t>(i), index + found, values + found));
  return found;
}

void round_values(float* values, std::int64_t count) {
  for (std::int64_t j = 0; j < count; j += Vec::kLanes) {
    const std::int64_t left = count - j < Vec::kLanes ? count - j : Vec::kLanes;
    round_lanes_to_bf16(Vec::load_first(values + j, left)).store_first(values + j, left);
  }
}

// What to fetch while neurons [j, j + size) of a list run: the next ones, as many as are left and the last of
// these over again.
const std::int32_t* next_group(const std::int32_t* index, std::int64_t j, std::int64_t size,
                               std::int64_t count) {
  return index + (j + 2 * size <= count ? j + size : count - size);
}

// Dot products of kCount neurons at once: independent chains that hide the latency of an FMA. `next` are
// the neurons whose rows are fetched meanwhile.
template <class Row, int kCount>
void dot_neurons(const float* x, std::int64_t length, const Rows& rows, const std::int32_t* index,
                 const std::int32_t* next, float* h) {
  const char* row[kCount];
  const char* next_row[kCount];
  Vec sum[kCount][kVecs];
  for (int j = 0; j < kCount; ++j) {
    row[j] = row_of(rows, index[j]);
    next_row[j] = row_of(rows, next[j]);
    for (Vec& vec : sum[j]) vec = Vec::zero();
  }
  std::int64_t offset = 0;
  for (std::int64_t k = 0; k < length; k += kGroup, offset += kGroup * Row::kBytes) {
#pragma GCC unroll 8
    for (int j = 0; j < kCount; ++j) {
      prefetch_group(next_row[j] + offset, kGroup * Row::kBytes);
#pragma GCC unroll 4
      for (int v = 0; v < kGroupVecs; ++v)
        sum[j][v % kVecs] =
            Vec::fma(Row::load(row[j] + offset, v), Vec::load(x + k + v * Vec::kLanes), sum[j][v % kVecs]);
    }
  }
  for (int j = 0; j < kCount; ++j) h[j] *= sum_lanes(sum[j]);
}

// Groups of kCount neurons, the rest in halves of that.
template <class Row, int kCount>
void dot_groups(const float* x, std::int64_t length, const Rows& rows, const std::int32_t* index,
                std::int64_t count, float* h) {
  std::int64_t j = 0;
  for (; j + kCount <= count; j += kCount)
    dot_neurons<Row, kCount>(x, length, rows, index + j, next_group(index, j, kCount, count), h + j);
  if constexpr (kCount > 1) dot_groups<Row, kCount / 2>(x, length, rows, index + j, count - j, h + j);
}

constexpr int kNeurons = 8 / kVecs;  // at once

template <class Row>
void dots(const float* x, std::int64_t length, const Rows& rows, const std::int32_t* index,
          std::int64_t count, float* h) {
  dot_groups<Row, kNeurons>(x, length, rows, index, count, h);
}

// kCount neurons into y: their rows pass whole, so that few rows of memory are open at a time. y is in L1,
// and its vectors are independent chains that hide the latency of an FMA. `next` as for dot_neurons.
template <class Row, int kCount>
void accumulate_neurons(const float* h, const Rows& rows, const std::int32_t* index, const std::int32_t* next,
                        std::int64_t first, std::int64_t columns, bool accumulate, float* y) {
  const char* row[kCount];
  const char* next_row[kCount];
  Vec factor[kCount];
  for (int j = 0; j < kCount; ++j) {
    row[j] = row_of(rows, index[j]) + first * Row::kBytes;
    next_row[j] = row_of(rows, next[j]) + first * Row::kBytes;
    factor[j] = Vec::broadcast(h + j);
  }
  std::int64_t offset = 0;
  for (std::int64_t c = 0; c < columns; c += kGroup, offset += kGroup * Row::kBytes) {
    for (int j = 0; j < kCount; ++j) prefetch_group(next_row[j] + offset, kGroup * Row::kBytes);
#pragma GCC unroll 4
    for (int v = 0; v < kGroupVecs; ++v) {
      const std::int64_t left = columns - c - v * Vec::kLanes;
      if (left <= 0) break;
      float* const to = y + c + v * Vec::kLanes;
      Vec sum = !accumulate ? Vec::zero() : left >= Vec::kLanes ? Vec::load(to) : Vec::load_first(to, left);
#pragma GCC unroll 8
      for (int j = 0; j < kCount; ++j) sum = Vec::fma(factor[j], Row::load(row[j] + offset, v), sum);
      if (left >= Vec::kLanes)
        sum.store(to);
      else
        sum.store_first(to, left);
    }
  }
}

// Groups of kCount neurons, the rest in halves of that.
template <class Row, int kCount>
void accumulate_groups(const float* h, const Rows& rows, const std::int32_t* index, std::int64_t count,
                       std::int64_t first, std::int64_t columns, bool accumulate, float* y) {
  std::int64_t j = 0;
  for (; j + kCount <= count; j += kCount, accumulate = true)
    accumulate_neurons<Row, kCount>(h + j, rows, index + j, next_group(index, j, kCount, count), first,
                                    columns, accumulate, y);
  if constexpr (kCount > 1)
    accumulate_groups<Row, kCount / 2>(h + j, rows, index + j, count - j, first, columns, accumulate, y);
}

template <class Row>
void accumulate_rows(const float* h, const Rows& rows, const std::int32_t* index, std::int64_t count,
                     std::int64_t first, std::int64_t columns, bool accumulate, float* y) {
  if (count == 0 && !accumulate)
    for (std::int64_t c = 0; c < columns; ++c) y[c] = 0;
  accumulate_groups<Row, kNeurons>(h, rows, index, count, first, columns, accumulate, y);
}

void silu_product(float* gate, const float* up, std::int64_t count) {
  // The sigmoid without an overflow: e^min(x, 0) / (1 + e^-|x|).
  const auto product = [](Vec g, Vec u) {
    const Vec above = exp_of_nonpositive(min(Vec::zero(), g));
    const Vec below = Vec::all(1) + exp_of_nonpositive(min(g, Vec::zero() - g));
    return g * above / below * u;
  };
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= count; i += Vec::kLanes)
    product(Vec::load(gate + i), Vec::load(up + i)).store(gate + i);
  if (i < count)
    product(Vec::load_first(gate + i, count - i), Vec::load_first(up + i, count - i))
        .store_first(gate + i, count - i);
}

}  // namespace
}  // namespace asynct::feed_forward
