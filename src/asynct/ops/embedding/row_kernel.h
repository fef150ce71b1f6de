#pragma once

#include "asynct/ops/embedding/kernels.h"

// Written once over Vec; a unit includes a simd/math_<isa>.h before this.
namespace asynct::embedding {
namespace {

struct F32 {
  using Element = float;
  static Vec load(const float* p) { return Vec::load(p); }
};
struct Bf16Storage {
  using Element = std::uint16_t;
  static Vec load(const std::uint16_t* p) { return load_as_float(p); }
};
struct F16Storage {
  using Element = std::uint16_t;
  static Vec load(const std::uint16_t* p) { return Vec::load_f16(p); }
};

template <class Storage>
void scale_row(const RowArgs& args) {
  using Element = typename Storage::Element;
  const auto* const from = static_cast<const Element*>(args.from);
  const Vec multiplier = Vec::all(args.multiplier);
  for (std::int64_t i = 0; i < args.size; i += Vec::kLanes) {
    const std::int64_t count = args.size - i < Vec::kLanes ? args.size - i : Vec::kLanes;
    Element tail[Vec::kLanes] = {};
    const Element* source = from + i;
    if (count < Vec::kLanes) {
      for (std::int64_t j = 0; j < count; ++j) tail[j] = source[j];
      source = tail;
    }
    const Vec value = Storage::load(source) * multiplier;
    (args.round ? round_lanes_to_bf16(value) : value).store_first(args.to + i, count);
  }
}

constexpr KernelTable kTable = {scale_row<F32>, scale_row<Bf16Storage>, scale_row<F16Storage>};

}  // namespace
}  // namespace asynct::embedding
