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
