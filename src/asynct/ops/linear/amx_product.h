#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "asynct/ops/linear/kernels.h"

// The product of bf16 rows and bf16 panels on matrix tiles, written once over Tiles: the processor's
// (kernel_amx.cc), or their emulation (amx_product_test.cc), so that layouts, edges and the order of sums are
// tested on any machine. Tiles are eight registers of up to 16 rows of 64 bytes:
//
//   Tiles tiles(height, row_tiles)   tiles 0-3 hold sums, 4 .. 4 + row_tiles - 1 inputs, those of `height`
//   rows;
//                                    the others hold 16 rows of weights; released by the destructor
//   tiles.load(Tile<T>, memory, bytes between rows), tiles.store(same), tiles.zero(Tile<T>)
//   tiles.dot(Tile<C>, Tile<A>, Tile<B>)
//                                    sums C [height][16 floats] += A [height][16 pairs] * B [16 pairs][16]
//
// A row's sum is the chain of dots over its inputs, 32 at a time, ascending, from zero. Nothing below changes
// that: row tiles and panels are independent, and a partial sum that is put aside comes back as it was.
namespace asynct::linear {
namespace {

template <int kIndex>
struct Tile {};

constexpr int kTileRows = 16;
constexpr std::int64_t kTileInputs = 32;
constexpr std::int64_t kTileRowBytes = 64;
constexpr std::int64_t kTileFloats = kTileRows * kPanel;
static_assert(kPanel * sizeof(float) == kTileRowBytes);

/// Inputs of a block of many rows, in tiles: two row tiles and two panels of it, 16 KB each, stay in L1.
constexpr std::int64_t kBlockSteps = kBlockInputs / kTileInputs;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows are cut into tiles of equal height, one tile or pairs of them. The last ones overlap rather than
// having rows to spare: both write the same bits to the rows they share.
struct RowTiles {
  explicit constexpr RowTiles(std::int64_t all)
      : rows(all),
        count(all <= kTileRows ? 1 : 2 * ceil_div(all, 2 * kTileRows)),
        height(ceil_div(all, count)) {}
  constexpr std::int64_t begin(std::int64_t tile) const {
    return tile * height < rows - height ? tile * height : rows - height;
  }

  std::int64_t rows;
  std::int64_t count;
  std::int64_t height;
};

// The pack: [row tiles][steps of inputs][height][kTileInputs] in bf16, zeros after the last input.
constexpr std::int64_t packed_tile(const RowTiles& tiles, std::int64_t inputs) {
  return ceil_div(inputs, kTileInputs) * tiles.height * kTileInputs;
}

// Before the pack: the partial sums of two panels, [row tiles][2][kTileRows][kPanel] floats.
constexpr std::int64_t partial_floats(const RowTiles& tiles) { return tiles.count * 2 * kTileFloats; }

[[maybe_unused]] std::size_t amx_scratch_bytes(std::int64_t rows, std::int64_t inputs) {
  const RowTiles tiles(rows);
  return static_cast<std::size_t>(partial_floats(tiles)) * sizeof(float) +
         static_cast<std::size_t>(tiles.count * packed_tile(tiles, inputs)) * sizeof(std::uint16_t);
}

// Exact for bf16 values; anything else is rounded to the nearest, as to_bf16() does.
inline void convert_step(const float* x, std::uint16_t* to) {
  std::uint32_t bits[kTileInputs];
  std::memcpy(bits, x, sizeof bits);
  for (std::int64_t i = 0; i < kTileInputs; ++i) {
    const std::uint32_t rounded = (bits[i] + 0x7fffU + ((bits[i] >> 16) & 1U)) >> 16;
    const std::uint32_t quiet_nan = (bits[i] >> 16) | 0x40U;
    to[i] = static_cast<std::uint16_t>((bits[i] & 0x7fffffffU) > 0x7f800000U ? quiet_nan : rounded);
  }
}

[[maybe_unused]] void amx_pack(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs,
                               std::byte* scratch) {
  const RowTiles tiles(rows);
  auto* const packed = reinterpret_cast<std::uint16_t*>(scratch + partial_floats(tiles) * sizeof(float));
  const std::int64_t whole = inputs / kTileInputs;
  const std::int64_t rest = inputs % kTileInputs;
  for (std::int64_t t = 0; t < tiles.count; ++t)
    for (std::int64_t r = 0; r < tiles.height; ++r) {
      const float* const row = x + (tiles.begin(t) + r) * stride;
      std::uint16_t* to = packed + t * packed_tile(tiles, inputs) + r * kTileInputs;
      for (std::int64_t step = 0; step < whole; ++step, to += tiles.height * kTileInputs)
        convert_step(row + step * kTileInputs, to);
      if (rest == 0) continue;
      float last[kTileInputs] = {};
      std::memcpy(last, row + whole * kTileInputs, static_cast<std::size_t>(rest) * sizeof(float));
      convert_step(last, to);
    }
}

template <int kCount, class Body>
inline void unrolled(Body body) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (body.template operator()<kIndex>(), ...); }
  (std::make_integer_sequence<int, kCount>{});
}

/// kRowTiles tiles of rows by kPanels panels over a block of inputs.
struct TileBlock {
  const std::uint16_t* a;     // the block in the first row tile
  std::int64_t a_tile;        // elements between row tiles
  std::int64_t a_step;        // elements between steps
  const std::byte* b;         // the block in the first panel
  std::int64_t panel_stride;  // bytes
  std::int64_t steps;
  float* partial;  // sums of the blocks before and after
  bool first;      // block of the inputs
  bool last;
  float* y[2];  // where a row tile's sums belong
  std::int64_t y_stride;
  std::int64_t columns;  // of y from the first panel on
  bool fetch;            // y, as for AmxArgs
};

template <int kSum, class Tiles>
void store_sums(Tiles& tiles, float* y, std::int64_t stride, std::int64_t columns, std::int64_t height) {
  if (columns >= kPanel) return tiles.store(Tile<kSum>{}, y, stride * std::int64_t{sizeof(float)});
  alignas(64) float edge[kTileFloats];
  tiles.store(Tile<kSum>{}, edge, kTileRowBytes);
  for (std::int64_t r = 0; r < height; ++r)
    std::memcpy(y + r * stride, edge + r * kPanel, static_cast<std::size_t>(columns) * sizeof(float));
}

// Registers of inputs and weights; sums are 0 .. 3.
constexpr int input_tile(int row) { return 4 + row; }
constexpr int weight_tile(int row_tiles, int column) {
  const int first = 4 + row_tiles;
  return first + column % (8 - first);
}

template <int kRowTiles, int kPanels, class Tiles>
void multiply_block(Tiles& tiles, const TileBlock& block) {
  constexpr std::int64_t kAhead = 2048;  // bytes of a panel, as in tile_kernel.h
  unrolled<kRowTiles * kPanels>([&]<int kSum>() {
    if (block.first)
      tiles.zero(Tile<kSum>{});
    else
      tiles.load(Tile<kSum>{}, block.partial + kSum * kTileFloats, kTileRowBytes);
  });
  if (kRowTiles > 1 && block.fetch && block.last)
    for (float* const y : block.y)
      for (std::int64_t r = 0; r < block.a_step / kTileInputs; ++r)
        for (int column = 0; column < kPanels; ++column)
          __builtin_prefetch(y + r * block.y_stride + column * kPanel);
  const std::uint16_t* a = block.a;
  const std::byte* b = block.b;
  for (std::int64_t step = 0; step < block.steps; ++step) {
    unrolled<kRowTiles>(
        [&]<int kRow>() { tiles.load(Tile<input_tile(kRow)>{}, a + kRow * block.a_tile, kTileRowBytes); });
    unrolled<kPanels>([&]<int kColumn>() {
      constexpr int kWeight = weight_tile(kRowTiles, kColumn);
      const std::byte* const panel = b + kColumn * block.panel_stride;
      if (kRowTiles == 1)  // one pass over the weights, which stream from memory
        for (int line = 0; line < kTileRows; ++line)
          __builtin_prefetch(panel + kAhead + line * kTileRowBytes);
      tiles.load(Tile<kWeight>{}, panel, kTileRowBytes);
      unrolled<kRowTiles>([&]<int kRow>() {
        tiles.dot(Tile<kRow * kPanels + kColumn>{}, Tile<input_tile(kRow)>{}, Tile<kWeight>{});
      });
    });
    a += block.a_step;
    b += kTileRows * kTileRowBytes;
  }
  unrolled<kRowTiles>([&]<int kRow>() {
    unrolled<kPanels>([&]<int kColumn>() {
      constexpr int kSum = kRow * kPanels + kColumn;
      if (block.last)
        store_sums<kSum>(tiles, block.y[kRow] + kColumn * kPanel, block.y_stride,
                         block.columns - kColumn * kPanel, block.a_step / kTileInputs);
      else
        tiles.store(Tile<kSum>{}, block.partial + kSum * kTileFloats, kTileRowBytes);
    });
  });
}

template <int kRowTiles, int kPanels, class Tiles>
void multiply_panels(Tiles& tiles, const TileBlock& block, std::int64_t panels) {
  if (panels >= kPanels) return multiply_block<kRowTiles, kPanels>(tiles, block);
  if constexpr (kPanels > 1) multiply_panels<kRowTiles, kPanels - 1>(tiles, block, panels);
}

// Panels kPanels at a time. Many rows take their inputs in blocks, so that the weights of a block stay in L1
// while all rows pass them.
template <class Tiles, int kRowTiles, int kPanels>
void multiply_shape(const AmxArgs& args) {
  const RowTiles rows(args.rows);
  Tiles tiles(static_cast<int>(rows.height), kRowTiles);
  auto* const partial = reinterpret_cast<float*>(args.scratch);
  const auto* const packed = reinterpret_cast<const std::uint16_t*>(partial + partial_floats(rows));
  const std::int64_t a_tile = packed_tile(rows, args.inputs);
  const std::int64_t a_step = rows.height * kTileInputs;
  const std::int64_t panels = ceil_div(args.columns, kPanel);
  const std::int64_t steps = ceil_div(args.inputs, kTileInputs);
  const std::int64_t blocks = kRowTiles == 1 ? 1 : ceil_div(steps, kBlockSteps);
  for (std::int64_t p = 0; p < panels; p += kPanels)
    for (std::int64_t i = 0; i < blocks; ++i)
      for (std::int64_t t = 0; t < rows.count; t += kRowTiles) {
        const std::int64_t begin = i * steps / blocks;
        float* const y = args.y + p * kPanel;
        multiply_panels<kRowTiles, kPanels>(
            tiles,
            {.a = packed + t * a_tile + begin * a_step,
             .a_tile = a_tile,
             .a_step = a_step,
             .b = args.b + p * args.panel_stride + begin * kTileRows * kTileRowBytes,
             .panel_stride = args.panel_stride,
             .steps = (i + 1) * steps / blocks - begin,
             .partial = partial + t * 2 * kTileFloats,
             .first = i == 0,
             .last = i == blocks - 1,
             .y = {y + rows.begin(t) * args.y_stride, y + rows.begin(t + kRowTiles - 1) * args.y_stride},
             .y_stride = args.y_stride,
             .columns = args.columns - p * kPanel,
             .fetch = args.fetch},
            panels - p);
      }
}

template <class Tiles>
void amx_multiply(const AmxArgs& args) {
  if (args.rows <= kTileRows)
    multiply_shape<Tiles, 1, 4>(args);
  else
    multiply_shape<Tiles, 2, 2>(args);
}

template <class Tiles>
constexpr AmxKernels make_amx_kernels() {
  return {amx_scratch_bytes, amx_pack, amx_multiply<Tiles>};
}

}  // namespace
}  // namespace asynct::linear
