#pragma once

#include "asynct/ops/linear/tile_kernel.h"

// Products by multiply-adds of floats; 16-bit weights are widened. A unit includes a simd/vec_<isa>.h before
// this.
namespace asynct::linear {
namespace {

// How a panel stores inputs 2 * pair and 2 * pair + 1 of its outputs [lane, lane + Vec::kLanes).
struct F32Panel : DwordPanel {
  static constexpr Storage kStorage = Storage::f32;
  static constexpr bool kStreams = false;
};
struct Bf16Panel {  // the two inputs of an output share a dword: widening is one shift or one mask
  using Element = std::uint16_t;
  static constexpr Storage kStorage = Storage::bf16;
  static constexpr bool kStreams = true;
  static Vec load(const std::uint16_t* pair, int odd, int lane) {
    return odd == 0 ? Vec::load_bf16_low(pair + 2 * lane) : Vec::load_bf16_high(pair + 2 * lane);
  }
};
struct F16Panel {
  using Element = std::uint16_t;
  static constexpr Storage kStorage = Storage::f16;
  static constexpr bool kStreams = true;
  static Vec load(const std::uint16_t* pair, int odd, int lane) {
    return Vec::load_f16(pair + odd * kPanel + lane);
  }
};

template <class Panel>
void widen(const void* panel, std::int64_t inputs, float* out) {
  const auto* from = static_cast<const typename Panel::Element*>(panel);
  for (std::int64_t k = 0; k < inputs; k += 2, from += 2 * kPanel)
    for (int odd = 0; odd < 2; ++odd)
      for (int lane = 0; lane < kPanel; lane += Vec::kLanes, out += Vec::kLanes)
        Panel::load(from, odd, lane).store(out);
}

template <class Limits, class Panel>
constexpr void fill_storage(KernelTable& table) {
  fill_rows<Limits, Panel, Limits::kRows>(table);
  table.widen[static_cast<int>(Panel::kStorage)] = widen<Panel>;
}

template <class Limits>
constexpr KernelTable make_table() {
  KernelTable table{};
  table.max_rows = Limits::kRows;
  table.tile_panels = Limits::kTilePanels;
  fill_storage<Limits, F32Panel>(table);
  fill_storage<Limits, Bf16Panel>(table);
  fill_storage<Limits, F16Panel>(table);
  return table;
}

}  // namespace
}  // namespace asynct::linear
