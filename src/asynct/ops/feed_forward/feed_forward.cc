#include "asynct/ops/feed_forward/feed_forward.h"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/ops/carver.h"
#include "asynct/ops/feed_forward/sparse_layer.h"
#include "asynct/ops/linear/multiply.h"
#include "asynct/ops/linear/schedule.h"
#include "asynct/ops/rounding.h"

namespace asynct {
namespace {

Linear make_gate(const OpContext& context, const FeedForwardWeights& weights, Activation activation) {
  const TensorView parts[] = {weights.gate, weights.up};
  return {context, std::span(parts).first(activation == Activation::relu ? 1 : 2)};
}

}  // namespace

FeedForward::FeedForward(const OpContext& context, const FeedForwardWeights& weights, Activation activation)
    : activation_(activation),
      neurons_(weights.gate.shape[0]),
      gate_(make_gate(context, weights, activation)) {
  const Shape& gate = weights.gate.shape;
  const Shape& down = weights.down.shape;
  if (!(weights.up.shape == gate) || down.rank() != 2 || down[0] != gate[1] || down[1] != gate[0])
    fail("feed-forward weights have shapes gate ", gate.to_string(), ", up ", weights.up.shape.to_string(),
         ", down ", down.to_string(), "; expected [F, d], [F, d], [d, F]");
  if (activation == Activation::relu) {
    up_ = feed_forward::NeuronRows(context.pool(), weights.up, false, context.weight_arena());
    down_ = feed_forward::NeuronRows(context.pool(), weights.down, true, context.weight_arena());
  } else {
    const TensorView parts[] = {weights.down};
    dense_down_.emplace(context, parts);
  }
}

std::size_t FeedForward::packed_bytes() const {
  return gate_.packed_bytes() + up_.bytes() + down_.bytes() + (dense_down_ ? dense_down_->packed_bytes() : 0);
}

void FeedForward::run(OpContext& context, ConstMatrix x, Matrix y,
                      std::optional<RowEpilogue> epilogue) const {
  assert(x.cols == gate_.inputs() && y.cols == x.cols && x.rows == y.rows);
  if (x.rows == 0) return;
  if (activation_ == Activation::relu)
    run_sparse(context, x, y, epilogue);
  else
    run_dense(context, x, y, epilogue);
}

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// What a carving function takes.
template <class Carve, class... Args>
std::size_t bytes_of(Carve carve, const Args&... args) {
  Carver count;
  carve(count, args...);
  return count.used();
}

// Below this a layer takes less time than waking workers three times does.
constexpr std::int64_t kTiny = 1 << 20;
bool is_tiny(std::int64_t rows, std::int64_t inputs, std::int64_t neurons) {
  return rows * inputs * neurons <= kTiny;
}

// Rows of a slice of run_dense(): bounds the memory of the inner products and is enough for all workers.
std::int64_t dense_slice(const OpContext& context) { return std::int64_t{4} * 112 * context.pool().size(); }

// Rows of x with zeros up to `length`; x itself where nothing is to be added.
ConstMatrix padded(ConstMatrix x, std::int64_t length, float* memory) {
  if (x.cols == length) return x;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    std::copy_n(x.row(r), x.cols, memory + r * length);
    std::fill_n(memory + r * length + x.cols, length - x.cols, 0.0F);
  }
  return {memory, x.rows, length};
}

}  // namespace

namespace feed_forward {
namespace {

// What run_block() keeps in its worker's scratch.
struct BlockScratch {
  float* gates;
  float* inputs;
  ActiveLists lists;
  float* tile;
  std::byte* product;
};

BlockScratch carve_block(Carver& carver, const SparseLayer& layer, std::int64_t rows, std::int64_t neurons,
                         std::int64_t length, std::size_t product_bytes) {
  const std::int64_t room = rows * layer.room();
  return {.gates = carver.take<float>(rows * neurons),
          .inputs = carver.take<float>(rows * length),
          .lists = {.index = carver.take<std::int32_t>(room),
                    .h = carver.take<float>(room),
                    .counts = carver.take<std::int64_t>(rows),
                    .room = layer.room()},
          .tile = carver.take<float>(layer.tile_room()),
          .product = carver.take<std::byte>(static_cast<std::int64_t>(product_bytes))};
}

// What run_shared() keeps in the shared scratch; index, h and counts of chunk after chunk.
struct SharedScratch {
  float* gates;
  float* inputs;
  std::int32_t* index;
  float* h;
  std::int64_t* counts;
  SparseLayer::Chunk* chunks;
};

SharedScratch carve_shared(Carver& carver, const SparseLayer& layer, std::int64_t rows, std::int64_t neurons,
                           std::int64_t length) {
  const std::int64_t room = layer.chunks() * rows * layer.room();
  return {.gates = carver.take<float>(rows * neurons),
          .inputs = carver.take<float>(rows * length),
          .index = carver.take<std::int32_t>(room),
          .h = carver.take<float>(room),
          .counts = carver.take<std::int64_t>(layer.chunks() * rows),
          .chunks = carver.take<SparseLayer::Chunk>(layer.chunks())};
}

std::size_t tile_bytes(const SparseLayer& layer) {
  return static_cast<std::size_t>(layer.tile_room()) * sizeof(float);
}

// A block of rows by one worker: the gate product, then chunk after chunk of neurons for all rows.
std::int64_t run_block(OpContext& context, const SparseLayer& layer, const Linear& gate, std::int64_t length,
                       ConstMatrix x, Matrix y, int worker) {
  const linear::Multiplier multiplier(context, gate.weight());
  const std::size_t product_bytes = multiplier.scratch_bytes(x.rows, x.cols);
  const auto carve = [&](Carver& carver) {
    return carve_block(carver, layer, x.rows, gate.outputs(), length, product_bytes);
  };
  Carver carver(context.scratch(worker, bytes_of(carve)));
  const BlockScratch scratch = carve(carver);
  const Matrix gates(scratch.gates, x.rows, gate.outputs());
  const ConstMatrix inputs = padded(x, length, scratch.inputs);
  SparseLayer::Chunk chunk{.lists = scratch.lists};
  multiplier.multiply(multiplier.pack(x, scratch.product), 0, gates);
  std::int64_t active = 0;
  for (std::int64_t c = 0; c < layer.chunks(); ++c) {
    layer.up(c, inputs, gates, scratch.tile, chunk);
    layer.down(c, chunk, 0, scratch.tile, y);
    active += chunk.active;
  }
  return active;
}

// Few rows by all workers: they share the panels of the gate, then the chunks of neurons, then the columns
// of the output. The sums are those of run_block.
std::int64_t run_shared(OpContext& context, const SparseLayer& layer, const Linear& gate, std::int64_t length,
                        ConstMatrix x, Matrix y) {
  const std::int64_t rows = x.rows;
  const std::int64_t chunk_count = layer.chunks();
  const std::int64_t room = rows * layer.room();
  const auto carve = [&](Carver& carver) {
    return carve_shared(carver, layer, rows, gate.outputs(), length);
  };
  Carver carver(context.shared_scratch(bytes_of(carve)));
  const SharedScratch scratch = carve(carver);
  const Matrix gates(scratch.gates, rows, gate.outputs());
  const ConstMatrix inputs = padded(x, length, scratch.inputs);
  const std::span chunks(scratch.chunks, static_cast<std::size_t>(chunk_count));
  const auto tile_of = [&](int worker) {
    const std::size_t bytes = tile_bytes(layer);
    return bytes == 0 ? nullptr : reinterpret_cast<float*>(context.scratch(worker, bytes));
  };

  gate.run(context, x, gates);
  context.pool().parallel_for(chunk_count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t c = begin; c < end; ++c) {
      SparseLayer::Chunk& chunk = chunks[static_cast<std::size_t>(c)];
      chunk = {.lists = {.index = scratch.index + c * room,
                         .h = scratch.h + c * room,
                         .counts = scratch.counts + c * rows,
                         .room = layer.room()}};
      layer.up(c, inputs, gates, tile_of(worker), chunk);
    }
  });
  constexpr std::int64_t kLeastColumns = 64;
  const std::int64_t workers = context.pool().size();
  const std::int64_t piece =
      std::max(kLeastColumns, (y.cols + workers - 1) / workers / kLeastColumns * kLeastColumns);
  context.pool().parallel_for(y.cols, piece, [&](std::int64_t begin, std::int64_t end, int worker) {
    const Matrix columns(y.data + begin, rows, end - begin, y.stride);
    for (std::int64_t c = 0; c < chunk_count; ++c)
      layer.down(c, chunks[static_cast<std::size_t>(c)], begin, tile_of(worker), columns);
  });
  std::int64_t active = 0;
  for (const SparseLayer::Chunk& chunk : chunks) active += chunk.active;
  return active;
}

}  // namespace
}  // namespace feed_forward

void FeedForward::run_sparse(OpContext& context, ConstMatrix x, Matrix y,
                             const std::optional<RowEpilogue>& epilogue) const {
  using feed_forward::SparseLayer;
  const linear::Multiplier multiplier(context, gate_.weight());
  counters_->neurons.fetch_add(x.rows * neurons_, std::memory_order_relaxed);
  const auto run_alone = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t rows = end - begin;
    const SparseLayer layer(context, up_, down_, neurons_, rows);
    counters_->active.fetch_add(
        feed_forward::run_block(context, layer, gate_, up_.length(), x.slice_rows(begin, rows),
                                y.slice_rows(begin, rows), worker),
        std::memory_order_relaxed);
    if (epilogue) (*epilogue)(begin, end, worker);
  };
  const int workers = context.pool().size();
  if (workers > 1 && is_tiny(x.rows, x.cols, neurons_)) return run_alone(0, x.rows, 0);
  if (x.rows <= multiplier.most_shared_rows(workers)) {
    const SparseLayer layer(context, up_, down_, neurons_, x.rows);
    counters_->active.fetch_add(feed_forward::run_shared(context, layer, gate_, up_.length(), x, y),
                                std::memory_order_relaxed);
    if (epilogue) linear::for_rows_after(context.pool(), x.rows, *epilogue);
    return;
  }
  // As many rows as a pack takes: every block reads all weights once, and those of large layers come from
  // memory.
  linear::for_row_blocks(context.pool(), x.rows, multiplier.most_rows(), run_alone);
}

void FeedForward::run_dense(OpContext& context, ConstMatrix x, Matrix y,
                            const std::optional<RowEpilogue>& epilogue) const {
  const feed_forward::KernelTable& table = feed_forward::kernels_of(context.isa());
  const std::int64_t slice = dense_slice(context);
  for (std::int64_t first = 0; first < x.rows; first += slice) {
    const std::int64_t rows = std::min(slice, x.rows - first);
    const Matrix inner(reinterpret_cast<float*>(
                           context.shared_scratch(static_cast<std::size_t>(rows * 2 * neurons_ * kFloat))),
                       rows, 2 * neurons_);
    gate_.run(context, x.slice_rows(first, rows), inner,
              [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
                for (std::int64_t r = begin; r < end; ++r) {
                  table.silu_product(inner.row(r), inner.row(r) + neurons_, neurons_);
                  round_if_bf16(context.precision(), inner.row(r), neurons_);
                }
              });
    const ConstMatrix h(inner.data, rows, neurons_, inner.stride);
    const auto shifted = [&](std::int64_t begin, std::int64_t end, int worker) {
      (*epilogue)(first + begin, first + end, worker);
    };
    dense_down_->run(context, h, y.slice_rows(first, rows),
                     epilogue ? std::optional<RowEpilogue>(shifted) : std::nullopt);
  }
}

ScratchSize FeedForward::scratch_size(const OpContext& context, const FeedForwardWeights& weights,
                                      Activation activation, std::int64_t max_rows) {
  using feed_forward::NeuronRows;
  const std::int64_t neurons = weights.gate.shape[0];
  const std::int64_t inputs = weights.gate.shape[1];
  const auto product = [&](std::int64_t outputs, std::int64_t from) {
    return linear::PackedMatrix::outline(weights.gate.dtype, outputs, from);
  };
  ScratchSize size;
  if (activation != Activation::relu) {
    const std::int64_t slice = std::min(max_rows, dense_slice(context));
    size.shared = static_cast<std::size_t>(slice * 2 * neurons * kFloat);
    size.cover(Linear::scratch_size(context, product(2 * neurons, inputs), slice));
    size.cover(Linear::scratch_size(context, product(inputs, neurons), slice));
    return size;
  }
  const linear::PackedMatrix gate = product(neurons, inputs);
  const linear::Multiplier multiplier(context, gate);
  const NeuronRows up = NeuronRows::outline(weights.up.dtype, neurons, inputs);
  const NeuronRows down = NeuronRows::outline(weights.down.dtype, neurons, inputs);
  const int workers = context.pool().size();
  const std::int64_t shared_rows = multiplier.most_shared_rows(workers);
  const std::int64_t tiny_rows = workers == 1 ? 0 : kTiny / (inputs * neurons);
  const std::int64_t block_rows = std::max(multiplier.most_rows(), tiny_rows);
  for (std::int64_t rows = 1; rows <= std::min(max_rows, std::max(block_rows, shared_rows)); ++rows) {
    const feed_forward::SparseLayer layer(context, up, down, neurons, rows);
    if (rows <= block_rows)
      size.cover({.worker = bytes_of(feed_forward::carve_block, layer, rows, neurons, up.length(),
                                     multiplier.scratch_bytes(rows, inputs))});
    if (rows <= shared_rows)
      size.cover({.worker = feed_forward::tile_bytes(layer),
                  .shared = bytes_of(feed_forward::carve_shared, layer, rows, neurons, up.length())});
  }
  size.cover(Linear::scratch_size(context, gate, std::min(max_rows, shared_rows)));
  return size;
}

}  // namespace asynct
