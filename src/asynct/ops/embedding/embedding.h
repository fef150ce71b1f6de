#pragma once

#include <cstdint>
#include <span>

#include "asynct/ops/context.h"

namespace asynct {

/// out[i] = multiplier * table[tokens[i]]. The table stays where it is (a mapped checkpoint): only the rows
/// that are used are ever read.
class Embedding {
 public:
  /// table [V, d], f32, bf16 or f16; must outlive the operator.
  Embedding(TensorView table, float multiplier) : table_(table), multiplier_(multiplier) {}

  /// tokens in [0, V); out [T, d]; rounds in bf16 precision.
  void run(OpContext& context, std::span<const std::int32_t> tokens, Matrix out) const;

 private:
  TensorView table_;
  float multiplier_;
};

}  // namespace asynct
