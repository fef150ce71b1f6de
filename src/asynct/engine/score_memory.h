#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "asynct/ops/head/head.h"

namespace asynct {

/// Beside each slot of the KV cache, the score of the token in it given all before it, once it was asked for.
/// With it a prompt whose blocks are found again has its log-probabilities without a row through the model,
/// which the cached keys and values alone cannot give.
class ScoreMemory {
 public:
  /// `slots` 0: remembers nothing.
  explicit ScoreMemory(std::int64_t slots) : scores_(static_cast<std::size_t>(slots), kUnknown) {}

  bool knows(std::int64_t slot) const { return !std::isnan(at(slot).logprob); }
  const TokenScore& at(std::int64_t slot) const { return scores_[static_cast<std::size_t>(slot)]; }
  void put(std::int64_t slot, const TokenScore& score) { scores_[static_cast<std::size_t>(slot)] = score; }
  void forget(std::int64_t first, std::int64_t count) {
    std::fill_n(scores_.begin() + first, count, kUnknown);
  }
  /// Those of `from` that `to` does not have: of two blocks with equal tokens, or before one is overwritten.
  void merge(std::int64_t from, std::int64_t to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      if (!knows(to + i)) put(to + i, at(from + i));
  }

 private:
  static constexpr TokenScore kUnknown{.logprob = std::numeric_limits<float>::quiet_NaN()};

  std::vector<TokenScore> scores_;
};

}  // namespace asynct
