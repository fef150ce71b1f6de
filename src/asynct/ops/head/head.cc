#include "asynct/ops/head/head.h"

#include <algorithm>
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

struct RowStats {
  std::int32_t argmax = -1;  // -1: a logit is NaN, or the largest is infinite
  float max = 0;
  double log_sum = 0;  // log sum exp(logit)
};

RowStats merge(std::span<const PieceStats> pieces) {
  constexpr RowStats kNaN = {.max = std::numeric_limits<float>::quiet_NaN(),
                             .log_sum = std::numeric_limits<double>::quiet_NaN()};
  RowStats row;
  float max = -std::numeric_limits<float>::infinity();
  for (const PieceStats& piece : pieces) {
    if (piece.argmax < 0) return kNaN;
    if (row.argmax >= 0 && piece.max <= max) continue;
    max = piece.max;
    row.argmax = static_cast<std::int32_t>((&piece - pieces.data()) * kPieceTokens) + piece.argmax;
  }
  if (!std::isfinite(max)) return kNaN;
  row.max = max;
  double sum = 0;
  for (const PieceStats& piece : pieces) sum += piece.exp_sum * std::exp(double{piece.max} - max);
  row.log_sum = double{max} + std::log(sum);
  return row;
}

}  // namespace

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
                     const auto count = static_cast<std::int64_t>(logits.size());
                     PieceStats found = table.largest(logits.data(), count);
                     if (found.argmax >= 0) found.exp_sum = table.exp_sum(logits.data(), count, found.max);
                     stats[static_cast<std::size_t>(row) * pieces + static_cast<std::size_t>(piece)] = found;
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
                   .argmax_logprob = static_cast<float>(merged.max - merged.log_sum)};
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
                         table.largest(logits.data(), static_cast<std::int64_t>(logits.size()));
                   });
    for (std::int64_t r = 0; r < rows; ++r)
      tokens[static_cast<std::size_t>(first + r)] =
          merge(stats.subspan(static_cast<std::size_t>(r) * pieces, pieces)).argmax;
  }
}

}  // namespace asynct
