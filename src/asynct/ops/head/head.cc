#include "asynct/ops/head/head.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "asynct/ops/head/kernels.h"
#include "asynct/ops/kernel_tables.h"
#include "asynct/ops/linear/multiply.h"

namespace asynct {
namespace {

using head::PieceStats;

// The vocabulary is cut into pieces of this many tokens, and a row's sum is the pieces' sums in order. Fixed,
// so that a score does not depend on the batch.
constexpr std::int64_t kPieceTokens = 512;

// Rows whose statistics are kept at a time: bounds memory, not results.
constexpr std::int64_t kRowsAtOnce = 2048;

const head::KernelTable& table_of(Isa isa) {
  return select_kernels(isa, head::kScalarKernels, head::kAvx2Kernels, head::kAvx512Kernels);
}

std::int64_t pieces_of(std::int64_t vocabulary) { return (vocabulary + kPieceTokens - 1) / kPieceTokens; }

std::size_t product_scratch(const linear::Multiplier& multiplier, std::int64_t rows, std::int64_t inputs) {
  return (multiplier.scratch_bytes(rows, inputs) + 63) / 64 * 64;
}

// Calls visit(row, piece, logits of the piece) for every row and piece, from any worker, in any order.
void for_each_piece(OpContext& context, const linear::PackedMatrix& weight, ConstMatrix hidden,
                    FunctionRef<void(std::int64_t row, std::int64_t piece, std::span<const float>)> visit) {
  const linear::Multiplier multiplier(context, weight);
  const std::int64_t pieces = pieces_of(weight.outputs());
  const std::int64_t blocks = (hidden.rows + multiplier.most_rows() - 1) / multiplier.most_rows();
  context.pool().parallel_for(blocks * pieces, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first_row = i / pieces * hidden.rows / blocks;
      const std::int64_t rows = (i / pieces + 1) * hidden.rows / blocks - first_row;
      const std::int64_t piece = i % pieces;
      const std::int64_t first_token = piece * kPieceTokens;
      const std::int64_t tokens = std::min(kPieceTokens, weight.outputs() - first_token);
      const std::size_t product_bytes = product_scratch(multiplier, rows, hidden.cols);
      std::byte* const scratch =
          context.scratch(worker, product_bytes + static_cast<std::size_t>(rows * tokens) * sizeof(float));
      const Matrix logits(reinterpret_cast<float*>(scratch + product_bytes), rows, tokens);
      multiplier.multiply(multiplier.pack(hidden.slice_rows(first_row, rows), scratch),
                          first_token / linear::kPanel, logits);
      for (std::int64_t r = 0; r < rows; ++r)
        visit(first_row + r, piece, {logits.row(r), static_cast<std::size_t>(tokens)});
    }
  });
}

// For every row and piece; each is written before it is read.
std::span<PieceStats> take_stats(OpContext& context, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<PieceStats>);
  return {reinterpret_cast<PieceStats*>(context.shared_scratch(count * sizeof(PieceStats))), count};
}

// piece(i): PieceStats of piece i, without its sum.
template <class Piece>
RowStats merge_largest(std::int64_t pieces, Piece piece) {
  RowStats row{.max = -std::numeric_limits<float>::infinity()};
  for (std::int64_t i = 0; i < pieces; ++i) {
    const PieceStats found = piece(i);
    if (found.argmax < 0) return {};
    if (row.argmax >= 0 && found.max <= row.max) continue;
    row.max = found.max;
    row.argmax = static_cast<std::int32_t>(i * kPieceTokens) + found.argmax;
  }
  return std::isfinite(row.max) ? row : RowStats{};
}

// piece(i): PieceStats of piece i with its sum.
template <class Piece>
double merge_sums(std::int64_t pieces, Piece piece, const RowStats& largest) {
  if (largest.argmax < 0) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const PieceStats found = piece(i);
    if (std::isinf(found.max)) continue;  // all of it is -infinity and adds nothing
    sum += found.exp_sum * std::exp(double{found.max} - largest.max);
  }
  return double{largest.max} + std::log(sum);
}

RowStats merge(std::span<const PieceStats> stats) {
  const auto piece = [&](std::int64_t i) { return stats[static_cast<std::size_t>(i)]; };
  RowStats row = merge_largest(std::ssize(stats), piece);
  row.log_sum = merge_sums(std::ssize(stats), piece, row);
  return row;
}

std::span<const float> piece_of(std::span<const float> logits, std::int64_t piece) {
  const auto begin = static_cast<std::size_t>(piece * kPieceTokens);
  return logits.subspan(begin, std::min<std::size_t>(kPieceTokens, logits.size() - begin));
}

PieceStats largest_of(const head::KernelTable& table, std::span<const float> piece) {
  return table.largest(piece.data(), std::ssize(piece));
}

PieceStats stats_of(const head::KernelTable& table, std::span<const float> piece) {
  PieceStats stats = largest_of(table, piece);
  if (stats.argmax >= 0) stats.exp_sum = table.exp_sum(piece.data(), std::ssize(piece), stats.max);
  return stats;
}

}  // namespace

RowStats row_largest(Isa isa, std::span<const float> logits) {
  assert(!logits.empty());
  const head::KernelTable& table = table_of(isa);
  return merge_largest(pieces_of(std::ssize(logits)),
                       [&](std::int64_t i) { return largest_of(table, piece_of(logits, i)); });
}

RowStats row_stats(Isa isa, std::span<const float> logits) {
  const head::KernelTable& table = table_of(isa);
  RowStats row = row_largest(isa, logits);
  row.log_sum = merge_sums(
      pieces_of(std::ssize(logits)), [&](std::int64_t i) { return stats_of(table, piece_of(logits, i)); },
      row);
  return row;
}

void row_weights(Isa isa, std::span<const float> logits, float max, double scale, std::span<double> weights) {
  assert(weights.size() == logits.size());
  table_of(isa).weights(logits.data(), std::ssize(logits), max, scale, weights.data());
}

double row_mass(Isa isa, std::span<const float> logits, float max, double scale) {
  constexpr std::size_t kChunk = 256;
  constexpr std::size_t kChains = 8;
  double sums[kChains] = {};
  double weights[kChunk];
  for (std::size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const auto chunk = logits.subspan(begin, std::min(kChunk, logits.size() - begin));
    row_weights(isa, chunk, max, scale, std::span(weights).first(chunk.size()));
    std::size_t i = 0;
    for (; i + kChains <= chunk.size(); i += kChains)
      for (std::size_t chain = 0; chain < kChains; ++chain) sums[chain] += weights[i + chain];
    for (; i < chunk.size(); ++i) sums[i % kChains] += weights[i];
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

Head::Head(const OpContext& context, TensorView weight) : linear_(context, {&weight, 1}) {}

ScratchSize Head::scratch_size(const OpContext& context, const TensorView& weight, std::int64_t max_rows) {
  const std::int64_t vocabulary = weight.shape[0];
  const std::int64_t inputs = weight.shape[1];
  const auto outline = linear::PackedMatrix::outline(weight.dtype, vocabulary, inputs);
  const linear::Multiplier multiplier(context, outline);
  ScratchSize size = Linear::scratch_size(context, outline, max_rows);
  for (std::int64_t rows = 1; rows <= std::min(max_rows, multiplier.most_rows()); ++rows)
    size.cover(
        {.worker = product_scratch(multiplier, rows, inputs) +
                   static_cast<std::size_t>(rows * std::min(kPieceTokens, vocabulary)) * sizeof(float)});
  size.cover({.shared = static_cast<std::size_t>(std::min(max_rows, kRowsAtOnce) * pieces_of(vocabulary)) *
                        sizeof(PieceStats)});
  return size;
}

void Head::logits(OpContext& context, ConstMatrix hidden, Matrix logits) const {
  linear_.run(context, hidden, logits);
}

void Head::score(OpContext& context, ConstMatrix hidden, std::span<const ScoreTarget> targets,
                 std::span<TokenScore> scores) const {
  assert(hidden.cols == linear_.inputs() && scores.size() == targets.size());
  assert(std::is_sorted(targets.begin(), targets.end(),
                        [](const ScoreTarget& a, const ScoreTarget& b) { return a.row < b.row; }));
  const head::KernelTable& table = table_of(context.isa());
  const auto pieces = static_cast<std::size_t>(pieces_of(vocabulary()));
  for (std::int64_t first = 0; first < hidden.rows; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, hidden.rows - first);
    const std::span<PieceStats> stats = take_stats(context, static_cast<std::size_t>(rows) * pieces);
    const auto targets_from = [&](std::int64_t row) {
      return static_cast<std::size_t>(
          std::lower_bound(targets.begin(), targets.end(), row,
                           [](const ScoreTarget& target, std::int64_t at) { return target.row < at; }) -
          targets.begin());
    };
    for_each_piece(context, linear_.weight(), hidden.slice_rows(first, rows),
                   [&](std::int64_t row, std::int64_t piece, std::span<const float> logits) {
                     const std::int64_t count = std::ssize(logits);
                     stats[static_cast<std::size_t>(row) * pieces + static_cast<std::size_t>(piece)] =
                         stats_of(table, logits);
                     // A target's logit waits in its score for the row's sum.
                     for (std::size_t t = targets_from(first + row);
                          t < targets.size() && targets[t].row == first + row; ++t) {
                       const std::int64_t at = targets[t].token - piece * kPieceTokens;
                       if (at >= 0 && at < count) scores[t].logprob = logits[static_cast<std::size_t>(at)];
                     }
                   });
    for (std::size_t t = targets_from(first); t < targets.size() && targets[t].row < first + rows; ++t) {
      const auto row = static_cast<std::size_t>(targets[t].row - first);
      const RowStats merged = merge(stats.subspan(row * pieces, pieces));
      scores[t] = {.logprob = static_cast<float>(scores[t].logprob - merged.log_sum),
                   .argmax = merged.argmax,
                   .argmax_logprob = static_cast<float>(double{merged.max} - merged.log_sum)};
    }
  }
}

void Head::greedy(OpContext& context, ConstMatrix hidden, std::span<std::int32_t> tokens) const {
  assert(hidden.cols == linear_.inputs() && std::ssize(tokens) == hidden.rows);
  const head::KernelTable& table = table_of(context.isa());
  const auto pieces = static_cast<std::size_t>(pieces_of(vocabulary()));
  for (std::int64_t first = 0; first < hidden.rows; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, hidden.rows - first);
    const std::span<PieceStats> stats = take_stats(context, static_cast<std::size_t>(rows) * pieces);
    for_each_piece(context, linear_.weight(), hidden.slice_rows(first, rows),
                   [&](std::int64_t row, std::int64_t piece, std::span<const float> logits) {
                     stats[static_cast<std::size_t>(row) * pieces + static_cast<std::size_t>(piece)] =
                         largest_of(table, logits);
                   });
    for (std::int64_t r = 0; r < rows; ++r)
      tokens[static_cast<std::size_t>(first + r)] =
          merge(stats.subspan(static_cast<std::size_t>(r) * pieces, pieces)).argmax;
  }
}

}  // namespace asynct
