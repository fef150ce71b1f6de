#pragma once

#include <cstdint>

#include "asynct/ops/storage.h"

// Private to FeedForward: kernels over neuron-major weights, that is, one row [d] a neuron. Included by units
// compiled with -m flags, hence no inline functions here.
namespace asynct::feed_forward {

/// Rows of weights are padded with zeros to a multiple of this. In bf16 a group of 32 is stored as 16 dwords,
/// dword i holding element i (low) and 16 + i (high): one shift or mask widens 16 neighbours.
constexpr int kGroup = 32;

struct Rows {
  const void* data;
  std::int64_t row_bytes;
};

/// A tile: neurons widened to float, [kTileNeurons][kTileColumns], 32 KB, so that it stays in L1 while many
/// rows pass it. kTileColumns elements of a row fit the registers of AVX-512 next to the sums.
constexpr int kTileNeurons = 32;
constexpr int kTileColumns = 256;

/// Active neurons of each of some rows: row r has counts[r] of them at index + r * room (positions in a
/// chunk, ascending) and their values at h + r * room. room >= neurons + 16.
struct ActiveLists {
  std::int32_t* index;
  float* h;
  std::int64_t* counts;
  std::int64_t room;
};

struct TileDots {
  const float* x;  // [rows][stride], the tile's columns of it
  std::int64_t stride;
  std::int64_t rows;
  const float* tile;
  std::int64_t columns;  // a multiple of kGroup, <= kTileColumns
  float* sums;           // [rows][kTileNeurons][16] from the first tile of columns to the last
  bool first;
  bool last;
  bool round;
};

/// Kernels of one ISA; arrays by Storage.
struct KernelTable {
  /// Positions i < count with gate[i] > 0 or NaN, ascending, into index, and those gates into values (both
  /// with room for count + 16); how many.
  std::int64_t (*find_active)(const float* gate, std::int64_t count, std::int32_t* index, float* values);

  /// h[j] *= <x, row index[j]> for x [length], length a multiple of kGroup: lane l of 16 sums elements l,
  /// l + 16, ... in order, then lanes l and l + 8 are added, l and l + 4, l + 2, l + 1.
  void (*dots[kStorages])(const float* x, std::int64_t length, const Rows& rows, const std::int32_t* index,
                          std::int64_t count, float* h);

  /// Each value rounded to the nearest bf16.
  void (*round_values)(float* values, std::int64_t count);

  /// y[c] (+)= sum_j h[j] * row index[j][first + c], c < columns, j ascending in one chain; first is a
  /// multiple of kGroup. Without `accumulate` the chain starts at 0.
  void (*accumulate_rows[kStorages])(const float* h, const Rows& rows, const std::int32_t* index,
                                     std::int64_t count, std::int64_t first, std::int64_t columns,
                                     bool accumulate, float* y);

  /// Fills index and counts for rows of gates [rows][stride], neurons <= kTileNeurons; bit i of the result:
  /// neuron i is active in some row.
  std::uint32_t (*find_active_in_tile)(const float* gates, std::int64_t stride, std::int64_t rows,
                                       std::int64_t neurons, ActiveLists lists);

  /// Columns [first, first + columns) of the neurons whose bit is set; both multiples of kGroup.
  void (*widen_tile[kStorages])(const Rows& rows, std::uint32_t neurons, std::int64_t first,
                                std::int64_t columns, float* tile);

  /// `dots` over the tiles of a chunk's columns, one after the other; at the last one also apply_gate, into
  /// lists.h. The same bits as dots.
  void (*tile_dots)(const TileDots& job, ActiveLists lists);

  /// accumulate_rows from a tile for each row of y [rows][stride].
  void (*tile_accumulate)(const float* tile, std::int64_t columns, std::int64_t rows, ActiveLists lists,
                          bool accumulate, float* y, std::int64_t stride);

  /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
  void (*silu_product)(float* gate, const float* up, std::int64_t count);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::feed_forward
