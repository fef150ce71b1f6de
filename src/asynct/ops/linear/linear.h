#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "asynct/base/function_ref.h"
#include "asynct/ops/context.h"
#include "asynct/ops/linear/packed_matrix.h"

namespace asynct {

/// Called for ranges of finished rows [begin, end), each row exactly once, in the parallel region of the
/// product that made them: the place for norms, RoPE, residuals and cache writes. Must not touch other rows'
/// data.
using RowEpilogue = FunctionRef<void(std::int64_t begin, std::int64_t end, int worker)>;

/// y[m, n] = sum_k x[m, k] * weight[n, k], no bias, float accumulation.
///
/// Weights are packed once, for the ISA of the context given: panels of 16 outputs, inputs inner. bf16 and
/// f16 weights stay 16 bits wide (widening is exact). The sum over k has one order that depends on nothing
/// but the layer, the ISA and the precision: not on the rows of the batch, their number, or the threads
/// (docs/architecture.md).
class Linear {
 public:
  /// `parts`: matrices [n_i, k] (f32, bf16 or f16, one dtype) stacked along n, so that q, k and v are one
  /// product. The views are read here and not kept.
  Linear(const OpContext& context, std::span<const TensorView> parts);

  std::int64_t inputs() const { return weight_.inputs(); }
  std::int64_t outputs() const { return weight_.outputs(); }
  std::size_t packed_bytes() const { return weight_.bytes(); }

  /// x [M, inputs], y [M, outputs], not overlapping. In bf16 precision x must hold bf16 values; y is stored
  /// unrounded: rounding is the business of the fused operator whose epilogue runs. A row of x is not read
  /// any more when the epilogue is called for it.
  void run(OpContext& context, ConstMatrix x, Matrix y, std::optional<RowEpilogue> epilogue = {}) const;

  /// What run() takes for up to `max_rows` rows; an outline of the weight is enough.
  static ScratchSize scratch_size(const OpContext& context, const linear::PackedMatrix& weight,
                                  std::int64_t max_rows);

  /// For operators that multiply inside parallel regions of their own (linear/multiply.h).
  const linear::PackedMatrix& weight() const { return weight_; }

 private:
  linear::PackedMatrix weight_;
};

}  // namespace asynct
