#pragma once

#include <array>
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

/// Columns of the streaming kernel's matrix instruction for `rows` tokens: the smallest that holds them, at
/// most 64.
constexpr std::int32_t stream_tokens(std::int32_t rows) {
  std::int32_t tokens = 8;
  while (tokens < rows && tokens < 64) tokens *= 2;
  return tokens;
}

inline constexpr std::int32_t kSliceGroups = 4;  // warpgroups of a sliced tile; parts of K are multiples

/// A tile of tokens and outputs that some kernel has, and what it was measured to take, in ns: a launch, a
/// tile a multiprocessor, 64 inputs.
struct LinearTile {
  std::int32_t tokens;
  std::int32_t outputs;
  bool slices;    // the parts of K by warpgroups at the same time (slice.cuh), else one after the other
  bool one_part;  // only where K has one
  std::int32_t launch, tile, step;

  constexpr bool suits(std::int32_t parts) const {
    return slices ? parts % kSliceGroups == 0 : parts == 1 || !one_part;
  }
};

inline constexpr std::array<LinearTile, 9> kLinearTiles = {{
    {64, 16, true, false, 200, 900, 150},
    {64, 32, true, false, 500, 1200, 150},
    {64, 64, false, false, 2600, 550, 166},
    {64, 96, false, false, 1900, 230, 217},
    {64, 128, false, false, 1400, 1300, 192},
    {128, 96, false, false, 2600, 1400, 260},
    {128, 128, false, false, 1850, 1450, 340},
    {128, 192, false, false, 2000, 2500, 473},
    {128, 256, false, true, 6000, 2500, 600},
}};

/// What a product should take on 132 multiprocessors.
constexpr std::int64_t tile_time(const LinearTile& tile, std::int32_t rows, std::int32_t outputs,
                                 std::int32_t inputs) {
  constexpr std::int64_t kMultiprocessors = 132;
  const auto tiles = std::int64_t{(rows - 1) / tile.tokens + 1} * ((outputs - 1) / tile.outputs + 1);
  const std::int64_t rounds = (tiles + kMultiprocessors - 1) / kMultiprocessors;
  return tile.launch + rounds * (tile.tile + std::int64_t{inputs / 64} * tile.step);
}

/// The fastest tile for a product; null: the streaming kernel. It is for few rows, and for up to 64 where K
/// is long: eight parts of K in eight blocks then win over four warpgroups. All give the same bits.
constexpr const LinearTile* linear_tile(std::int32_t rows, std::int32_t outputs, std::int32_t inputs) {
  const std::int32_t parts = linear_parts(outputs, inputs);
  if (rows <= (parts == kMostParts ? 64 : 16)) return nullptr;
  const LinearTile* best = nullptr;
  for (const LinearTile& tile : kLinearTiles)
    if (tile.suits(parts) &&
        (best == nullptr || tile_time(tile, rows, outputs, inputs) < tile_time(*best, rows, outputs, inputs)))
      best = &tile;
  return best;
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
