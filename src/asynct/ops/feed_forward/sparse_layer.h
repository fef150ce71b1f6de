#pragma once

#include <cstdint>

#include "asynct/ops/context.h"
#include "asynct/ops/feed_forward/kernels.h"
#include "asynct/ops/feed_forward/neuron_rows.h"

namespace asynct::feed_forward {

const KernelTable& kernels_of(Isa isa);

/// The sparse half of a ReGLU layer: up and down over the active neurons of rows whose gate products are
/// known, a chunk of neurons after the other. How the rows pass a chunk (one by one, or all of them a tile of
/// widened weights) is a matter of speed: the sums are the same bits.
class SparseLayer {
 public:
  /// For `rows` rows at a time, of [rows, neurons] gates.
  SparseLayer(const OpContext& context, const NeuronRows& up, const NeuronRows& down, std::int64_t neurons,
              std::int64_t rows);

  std::int64_t chunks() const { return (neurons_ + chunk_ - 1) / chunk_; }

  /// What is known of a chunk of neurons between up and down.
  struct Chunk {
    ActiveLists lists;          // counts [rows], index and h [rows * room()]
    std::int64_t active = 0;    // of all rows
    std::uint32_t neurons = 0;  // active in some row (tiles only)
  };
  std::int64_t room() const { return chunk_ + 16; }

  /// Floats that a worker needs in `tile` below.
  std::int64_t tile_room() const;

  /// Chunk `c`'s lists for rows x [rows, up.length()]: active neurons and h = gate * up.
  void up(std::int64_t c, ConstMatrix x, ConstMatrix gates, float* tile, Chunk& chunk) const;

  /// Adds the chunk to y, columns [begin, begin + y.cols) of the output, begin a multiple of kGroup; chunk 0
  /// starts the sums.
  void down(std::int64_t c, const Chunk& chunk, std::int64_t begin, float* tile, Matrix y) const;

 private:
  bool tiled() const { return chunk_ == kTileNeurons; }
  bool pays(const Chunk& chunk) const;
  void up_in_tiles(const Rows& rows, ConstMatrix x, float* tile, const Chunk& chunk) const;

  const KernelTable& table_;
  bool round_;
  const NeuronRows& up_;
  const NeuronRows& down_;
  std::int64_t neurons_;
  std::int64_t rows_;
  std::int64_t chunk_;
};

}  // namespace asynct::feed_forward
