#include "asynct/ops/feed_forward/sparse_layer.h"

#include <algorithm>
#include <bit>

#include "asynct/ops/kernel_tables.h"

namespace asynct::feed_forward {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kTileFloats = std::int64_t{kTileNeurons} * kTileColumns;

// Fewer rows hardly share neurons.
constexpr std::int64_t kFewRows = 16;

std::int64_t chunk_of(const NeuronRows& up, std::int64_t neurons, std::int64_t rows, int workers) {
  if (rows >= kFewRows) return kTileNeurons;
  // Long lists of active neurons, so that kernels can fetch ahead, but enough chunks for all workers. Several
  // rows find the weights of a chunk in L2 when the first has read them.
  constexpr std::int64_t kBytes = 128 << 10;
  const std::int64_t most =
      rows == 1 ? 1024 : std::clamp<std::int64_t>(kBytes / up.rows().row_bytes, 64, 256);
  const std::int64_t share = workers == 1 ? neurons : neurons / ((rows == 1 ? 2 : 4) * workers);
  return std::max<std::int64_t>(64, std::min(most, share) / 64 * 64);
}

Rows rows_from(const NeuronRows& weight, std::int64_t first) {
  const Rows all = weight.rows();
  return {static_cast<const std::byte*>(all.data) + first * all.row_bytes, all.row_bytes};
}

}  // namespace

const KernelTable& kernels_of(Isa isa) {
  return select_kernels(isa, kScalarKernels, kAvx2Kernels, kAvx512Kernels);
}

SparseLayer::SparseLayer(const OpContext& context, const NeuronRows& up, const NeuronRows& down,
                         std::int64_t neurons, std::int64_t rows)
    : table_(kernels_of(context.isa())),
      round_(context.precision() == Precision::bf16),
      up_(up),
      down_(down),
      neurons_(neurons),
      rows_(rows),
      chunk_(chunk_of(up, neurons, rows, context.pool().size())) {}

std::int64_t SparseLayer::tile_room() const {
  if (!tiled()) return 0;
  const std::int64_t rows_of_sums = up_.length() > kTileColumns ? rows_ : 0;
  return kTileFloats + rows_of_sums * kTileNeurons * kLanes;
}

// Widening a neuron costs about what its use by one row gains.
bool SparseLayer::pays(const Chunk& chunk) const {
  return tiled() && chunk.active >= 2 * std::popcount(chunk.neurons);
}

void SparseLayer::up(std::int64_t c, ConstMatrix x, ConstMatrix gates, float* tile, Chunk& chunk) const {
  const std::int64_t first = c * chunk_;
  const std::int64_t count = std::min(chunk_, neurons_ - first);
  const ActiveLists& lists = chunk.lists;
  const ConstMatrix chunk_gates(gates.data + first, gates.rows, count, gates.stride);
  if (tiled())
    chunk.neurons = table_.find_active_in_tile(chunk_gates.data, gates.stride, x.rows, count, lists);
  else
    for (std::int64_t r = 0; r < x.rows; ++r)
      lists.counts[r] = table_.find_active(chunk_gates.row(r), count, lists.index + r * lists.room,
                                           lists.h + r * lists.room);
  chunk.active = 0;
  for (std::int64_t r = 0; r < x.rows; ++r) chunk.active += lists.counts[r];

  const Rows rows = rows_from(up_, first);
  if (pays(chunk)) return up_in_tiles(rows, x, tile, chunk);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const std::int32_t* const index = lists.index + r * lists.room;
    float* const h = lists.h + r * lists.room;
    table_.dots[static_cast<int>(up_.storage())](x.row(r), up_.length(), rows, index, lists.counts[r], h);
    if (round_) table_.round_values(h, lists.counts[r]);
  }
}

void SparseLayer::up_in_tiles(const Rows& rows, ConstMatrix x, float* tile, const Chunk& chunk) const {
  for (std::int64_t k = 0; k < x.cols; k += kTileColumns) {
    const std::int64_t columns = std::min<std::int64_t>(kTileColumns, x.cols - k);
    table_.widen_tile[static_cast<int>(up_.storage())](rows, chunk.neurons, k, columns, tile);
    table_.tile_dots({.x = x.data + k,
                      .stride = x.stride,
                      .rows = x.rows,
                      .tile = tile,
                      .columns = columns,
                      .sums = tile + kTileFloats,
                      .first = k == 0,
                      .last = k + columns == x.cols,
                      .round = round_},
                     chunk.lists);
  }
}

void SparseLayer::down(std::int64_t c, const Chunk& chunk, std::int64_t begin, float* tile, Matrix y) const {
  const Rows rows = rows_from(down_, c * chunk_);
  const ActiveLists& lists = chunk.lists;
  const auto storage = static_cast<int>(down_.storage());
  if (!pays(chunk)) {
    for (std::int64_t r = 0; r < y.rows; ++r)
      table_.accumulate_rows[storage](lists.h + r * lists.room, rows, lists.index + r * lists.room,
                                      lists.counts[r], begin, y.cols, c > 0, y.row(r));
    return;
  }
  for (std::int64_t n = 0; n < y.cols; n += kTileColumns) {
    const std::int64_t columns = std::min<std::int64_t>(kTileColumns, y.cols - n);
    table_.widen_tile[storage](rows, chunk.neurons, begin + n, (columns + kGroup - 1) / kGroup * kGroup,
                               tile);
    table_.tile_accumulate(tile, columns, y.rows, lists, c > 0, y.data + n, y.stride);
  }
}

}  // namespace asynct::feed_forward
