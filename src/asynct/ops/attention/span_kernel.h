#pragma once

#include "asynct/ops/attention/tile_kernel.h"

// Finds the keys and values of a span in the paged cache: as they lie when the layout allows, else copied
// into a tile of floats. Both ways feed the same arithmetic, so the bits of a result do not depend on the
// layout.
namespace asynct::attention {
namespace {

template <class T>
const T* page(const HeadPages& pages, const UnitArgs& unit, std::int64_t key) {
  const std::int64_t block = unit.blocks[key >> unit.block_shift];
  const std::int64_t token = key & ((std::int64_t{1} << unit.block_shift) - 1);
  return static_cast<const T*>(pages.data) + block * pages.block_stride + token * pages.token_stride;
}

inline bool group_in_place(const UnitArgs& unit) {
  return unit.key.token_stride == 1 && unit.block_shift >= 4;
}
inline bool row_in_place(const UnitArgs& unit) {
  return unit.value.dim_stride == 1 && unit.head_dim == unit.padded_dim;
}

template <class T>
Span<T> span_in_place(const UnitArgs& unit, std::int64_t begin, int keys) {
  Span<T> span;
  span.dim_stride = unit.key.dim_stride;
  for (int j = 0; j < keys; j += kGroupKeys) {
    span.groups[j / kGroupKeys] = page<T>(unit.key, unit, begin + j);
    const T* const row = page<T>(unit.value, unit, begin + j);
    for (int i = 0; i < kGroupKeys && j + i < keys; ++i) span.rows[j + i] = row + i * unit.value.token_stride;
  }
  return span;
}

/// Asks for the keys of the span at `begin` ahead of time: pages lie anywhere, so the hardware cannot guess.
template <class T>
void prefetch_keys(const UnitArgs& unit, std::int64_t begin, int keys) {
  const std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t step = unit.key.dim_stride >= line ? 1 : line / unit.key.dim_stride;
  for (int j = 0; j < keys; j += kGroupKeys) {
    const T* const group = page<T>(unit.key, unit, begin + j);
    for (std::int64_t d = 0; d < unit.head_dim; d += step)
      __builtin_prefetch(group + d * unit.key.dim_stride, 0, 2);
  }
}

template <class T>
void prefetch_rows(const UnitArgs& unit, const Span<T>& span, std::uint64_t needed) {
  constexpr int kLine = 64 / static_cast<int>(sizeof(T));
  for (; needed != 0; needed &= needed - 1) {
    const T* const row = span.rows[__builtin_ctzll(needed)];
    for (int d = 0; d < unit.padded_dim; d += kLine) __builtin_prefetch(row + d, 0, 3);
  }
}

inline float element_as_float(float value) { return value; }
inline float element_as_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof value);
  return value;
}

template <class T>
void pack_keys(const UnitArgs& unit, std::int64_t begin, int keys, float* tile) {
  const std::int64_t dim_stride = unit.key.dim_stride;
  for (int j = 0; j < keys; j += kGroupKeys) {
    float* const group = tile + std::int64_t{j} * unit.head_dim;
    if (group_in_place(unit)) {
      const T* const from = page<T>(unit.key, unit, begin + j);
      for (int d = 0; d < unit.head_dim; ++d)
        for (int v = 0; v < kGroupKeys; v += Vec::kLanes)
          load_as_float(from + d * dim_stride + v).store(group + d * kGroupKeys + v);
      continue;
    }
    for (int i = 0; i < kGroupKeys && j + i < keys; ++i) {
      const T* const from = page<T>(unit.key, unit, begin + j + i);
      for (int d = 0; d < unit.head_dim; ++d)
        group[d * kGroupKeys + i] = element_as_float(from[d * dim_stride]);
    }
  }
}

template <class T>
void pack_values(const UnitArgs& unit, std::int64_t begin, int keys, float* tile) {
  for (int j = 0; j < keys; ++j) {
    const T* const from = page<T>(unit.value, unit, begin + j);
    float* const row = tile + std::int64_t{j} * unit.padded_dim;
    if (row_in_place(unit)) {
      for (int d = 0; d < unit.head_dim; d += Vec::kLanes) load_as_float(from + d).store(row + d);
      continue;
    }
    for (int d = 0; d < unit.head_dim; ++d) row[d] = element_as_float(from[d * unit.value.dim_stride]);
    for (int d = unit.head_dim; d < unit.padded_dim; ++d) row[d] = 0;
  }
}

inline Span<float> packed_span(const UnitArgs& unit, std::int64_t begin, int keys) {
  float* const key_tile = unit.work.keys;
  float* const value_tile = unit.work.values;
  unit.key.bf16 ? pack_keys<std::uint16_t>(unit, begin, keys, key_tile)
                : pack_keys<float>(unit, begin, keys, key_tile);
  unit.value.bf16 ? pack_values<std::uint16_t>(unit, begin, keys, value_tile)
                  : pack_values<float>(unit, begin, keys, value_tile);
  Span<float> span;
  span.dim_stride = kGroupKeys;
  for (int j = 0; j < keys; j += kGroupKeys)
    span.groups[j / kGroupKeys] = key_tile + std::int64_t{j} * unit.head_dim;
  for (int j = 0; j < keys; ++j) span.rows[j] = value_tile + std::int64_t{j} * unit.padded_dim;
  return span;
}

}  // namespace
}  // namespace asynct::attention
