#pragma once

#include <cstddef>
#include <cstdint>

// Sizes that are part of the reduction order, and tiles, which are not.
//
// A product's sum over k runs in blocks of 16 (one matrix instruction) within a part of K, and part sums are
// added in order. How many parts there are depends on the layer's shape only, so a row's result does not
// depend on the rows beside it, nor on the kernel that computes it.
namespace asynct::cuda {

inline constexpr std::int32_t kStreamRows = 64;    // weight rows of a warpgroup of the streaming kernel
inline constexpr std::int32_t kStreamDepth = 128;  // k of one of its stages
inline constexpr std::int32_t kMostParts = 8;      // blocks of a cluster on any device

/// Parts of K for a weight [outputs, inputs]: the fewest of at most 384 inputs, so that a layer's weights
/// give every multiprocessor work and chains of instructions stay short. One for a head, whose rows are
/// plenty.
constexpr std::int32_t linear_parts(std::int32_t outputs, std::int32_t inputs) {
  std::int32_t parts = 1;
  if (outputs > 32768) return parts;
  while (parts < kMostParts && inputs / parts > 384 && inputs % (2 * parts * kStreamDepth) == 0) parts *= 2;
  return parts;
}

/// More rows are the tile kernel's. Both give the same bits.
inline constexpr std::int32_t kMostStreamRows = 64;

/// Columns of the streaming kernel's matrix instruction for `rows` tokens: the smallest that holds them, at
/// most 64.
constexpr std::int32_t stream_tokens(std::int32_t rows) {
  std::int32_t tokens = 8;
  while (tokens < rows && tokens < 64) tokens *= 2;
  return tokens;
}

/// Rows of one copy of the tile kernel, of which `rows` are needed: the largest power of two that divides
/// them, 8 to 128.
constexpr std::int32_t tile_box(std::int32_t rows) {
  std::int32_t box = 8;
  while (box < 128 && rows % (2 * box) == 0) box *= 2;
  return box;
}

/// Where LinearWeight and LinearInput have the map for such a box.
constexpr std::size_t tile_map_of(std::int32_t box) {
  std::size_t map = 0;
  for (; box > 8; box /= 2) ++map;
  return map;
}

}  // namespace asynct::cuda
