#pragma once

#include <cstdint>

#include "asynct/ops/linear/kernels.h"

// The tile kernel, written once over Vec and over Panel, how weights are stored:
//
//   Panel::Element, kStorage, kStreams (they come from memory, not from a tile widened into L1)
//   Panel::load(pair, odd, lane)   inputs 2 * pair and 2 * pair + 1 of outputs [lane, lane + Vec::kLanes)
//
// A unit includes what defines Vec and then fma_kernels.h or dot_kernels.h.
namespace asynct::linear {
namespace {

constexpr int kVecs = kPanel / Vec::kLanes;  // vectors of a panel

// A panel of dwords, which one load brings as they are: floats, or bf16 pairs.
struct DwordPanel {
  using Element = float;
  static Vec load(const float* pair, int odd, int lane) { return Vec::load(pair + odd * kPanel + lane); }
};

// The edge of c, some columns of which are not there, goes through a whole tile in memory.
template <int kRows>
void copy_columns(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                  std::int64_t columns) {
  for (int r = 0; r < kRows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[r * to_stride + c] = from[r * from_stride + c];
}

template <int kRows, int kVectors>
inline void load_tile(const float* c, std::int64_t stride, Vec (&sum)[kRows][kVectors]) {
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::load(c + r * stride + v * Vec::kLanes);
}

template <int kRows, int kVectors>
inline void store_tile(float* c, std::int64_t stride, const Vec (&sum)[kRows][kVectors]) {
#pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[r][v].store(c + r * stride + v * Vec::kLanes);
}

template <class Panel, int kRows, int kPanels>
void tile(const TileArgs& args) {
  using Element = typename Panel::Element;
  constexpr int kVectors = kPanels * kVecs;
  // Weights that stream from memory: fetch each panel ahead of the hardware's guess. f32 under many rows is
  // the widened tile in L1.
  constexpr bool kStream = Panel::kStreams || kRows <= 4;
  constexpr std::int64_t kAhead = 1024;  // bytes
  constexpr int kColumns = kPanels * kPanel;
  float edge[kRows * kColumns];
  const bool whole = args.columns == kColumns;
  float* const c = whole ? args.c : edge;
  const std::int64_t c_stride = whole ? args.c_stride : kColumns;

  if constexpr (kRows > 4)
    if (whole && args.fetch)
      for (int r = 0; r < kRows; ++r)
        for (int column = 0; column < kColumns; column += 16) prefetch(c + r * c_stride + column);

  Vec sum[kRows][kVectors];
  if (args.accumulate) {
    if (!whole) copy_columns<kRows>(args.c, args.c_stride, edge, kColumns, args.columns);
    load_tile(c, c_stride, sum);
  } else {
#pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::zero();
  }

  const char* b = static_cast<const char*>(args.b);
  const float* block = args.a;
  // Near the ends of its panels a group fetches the beginnings of the next group's.
  const std::int64_t jump = (kPanels - 1) * args.panel_stride;
  const char* const begin = b;
  const std::int64_t tail = args.inputs * kPanel * static_cast<std::int64_t>(sizeof(Element)) - kAhead;
  for (std::int64_t left = args.inputs; left > 0; left -= kBlockInputs, block += args.block_stride) {
    const float* a = block;
    const float* const a_end = a + (left < kBlockInputs ? left : kBlockInputs);
    for (; a != a_end; a += 2, b += 2 * kPanel * sizeof(Element)) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        Vec weight[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const char* const panel = b + (v / kVecs) * args.panel_stride;
          if (kStream && odd == 0 && v % kVecs == 0) {
            const char* const ahead = panel + kAhead + (b - begin >= tail ? jump : 0);
            prefetch(ahead);
            if (sizeof(Element) == 4) prefetch(ahead + 64);
          }
          weight[v] = Panel::load(reinterpret_cast<const Element*>(panel), odd, v % kVecs * Vec::kLanes);
        }
#pragma GCC unroll 14
        for (int r = 0; r < kRows; ++r) {
          const Vec input = Vec::broadcast(a + r * kRowStride + odd);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sum[r][v] = Vec::fma(input, weight[v], sum[r][v]);
        }
      }
    }
  }
  store_tile(c, c_stride, sum);
  if (!whole) copy_columns<kRows>(edge, kColumns, args.c, args.c_stride, args.columns);
}

/// Limits::panels(rows): the most panels (1, 2, 4 or 8) a tile of `rows` rows may have, 0 for none.
template <class Limits, class Panel, int kRows, int kLog>
constexpr TileKernel tile_or_null() {
  if constexpr ((1 << kLog) <= Limits::panels(kRows))
    return tile<Panel, kRows, 1 << kLog>;
  else
    return nullptr;
}

template <class Limits, class Panel, int kRows>
constexpr void fill_rows(KernelTable& table) {
  TileKernel(&kernels)[kPanelCounts] = table.tile[static_cast<int>(Panel::kStorage)][kRows - 1];
  kernels[0] = tile_or_null<Limits, Panel, kRows, 0>();
  kernels[1] = tile_or_null<Limits, Panel, kRows, 1>();
  kernels[2] = tile_or_null<Limits, Panel, kRows, 2>();
  kernels[3] = tile_or_null<Limits, Panel, kRows, 3>();
  if constexpr (kRows > 1) fill_rows<Limits, Panel, kRows - 1>(table);
}

}  // namespace
}  // namespace asynct::linear
