#pragma once

#include <cstdint>
#include <span>

#include "asynct/ops/linear/linear.h"

namespace asynct {

/// One token whose log-probability is wanted after one row.
struct ScoreTarget {
  std::int32_t row = 0;    // row of the hidden matrix
  std::int32_t token = 0;  // 0 <= token < vocabulary
};

struct TokenScore {
  float logprob = 0;         // log softmax(logits[row])[token], computed in float, summed in double
  std::int32_t argmax = 0;   // first index of the row's largest logit
  float argmax_logprob = 0;  // log softmax(logits[row])[argmax]; equal to logprob where token is argmax
};

struct RowStats {
  std::int32_t argmax = -1;  // first index of the largest logit; -1: one is NaN, or the largest is infinite
  float max = 0;             // undefined where argmax is -1
  double log_sum = 0;        // log sum exp(logit); NaN where argmax is -1
};

/// Of a row of logits that was kept, not empty: bit for bit what Head::score and Head::greedy of the same
/// family find, so that float(logit - log_sum) is TokenScore::logprob.
RowStats row_stats(Isa isa, std::span<const float> logits);

/// The same without log_sum, which is left 0.
RowStats row_largest(Isa isa, std::span<const float> logits);

/// weights[i] = exp((logits[i] - max) * scale), at least e^kLowestExponent (weight.h): max is the largest
/// logit of the row that the logits are of, scale > 0. In double, the same bits in every family.
void row_weights(Isa isa, std::span<const float> logits, float max, double scale, std::span<double> weights);

/// Their sum over a row, in an order of its own.
double row_mass(Isa isa, std::span<const float> logits, float max, double scale);

/// The language-model head: logits[r, v] = sum_k hidden[r, k] * weight[v, k]. Logits that are no
/// numbers are never chosen silently: argmax of a row that holds a NaN, or whose largest logit is infinite,
/// is -1 and its log-probabilities are NaN.
class Head {
 public:
  /// weight [V, d]: lm_head, or the embedding when tied.
  Head(const OpContext& context, TensorView weight);

  /// What the functions below take for up to `max_rows` rows.
  static ScratchSize scratch_size(const OpContext& context, const TensorView& weight, std::int64_t max_rows);

  std::int64_t vocabulary() const { return linear_.outputs(); }
  std::size_t packed_bytes() const { return linear_.packed_bytes(); }

  /// logits [R, V].
  void logits(OpContext& context, ConstMatrix hidden, Matrix logits) const;

  /// Scores of targets (ascending by row) without keeping the logits: memory is a tile of rows, not R x V.
  void score(OpContext& context, ConstMatrix hidden, std::span<const ScoreTarget> targets,
             std::span<TokenScore> scores) const;

  /// argmax of every row, likewise.
  void greedy(OpContext& context, ConstMatrix hidden, std::span<std::int32_t> tokens) const;

 private:
  Linear linear_;
};

}  // namespace asynct
