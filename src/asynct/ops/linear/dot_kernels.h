#pragma once

#include "asynct/ops/linear/tile_kernel.h"

// Products by dot products of bf16 pairs. To a tile kernel a pair, in the dword of a float, is one input:
// Vec::load and Vec::broadcast move dwords, and Vec::fma(a, b, sum) is, in each lane, sum + a's odd element
// times b's, then that + the even elements' product, each rounded to the nearest float and flushed to zero
// when it is subnormal, as inputs are (VDPBF16PS). A unit defines such a Vec before it includes this.
namespace asynct::linear {
namespace {

struct PairPanel : DwordPanel {
  static constexpr Storage kStorage = Storage::bf16;
  static constexpr bool kStreams = true;
};

template <class Limits>
constexpr KernelTable make_dot_table(PackPairs pack_pairs) {
  KernelTable table{};
  table.max_rows = Limits::kRows;
  table.tile_panels = Limits::kTilePanels;
  table.pack_pairs = pack_pairs;
  fill_rows<Limits, PairPanel, Limits::kRows>(table);
  return table;
}

}  // namespace
}  // namespace asynct::linear
