#pragma once

#include <cstddef>
#include <cstdint>

#include "asynct/ops/context.h"
#include "asynct/ops/linear/kernels.h"
#include "asynct/ops/linear/packed_matrix.h"
#include "asynct/tensor/tensor.h"

namespace asynct::linear {

/// The serial product that Linear, FeedForward and Head spread over their workers:
///
///   const Multiplier multiplier(context, weight);
///   PackedRows rows = multiplier.pack(x, scratch);              // scratch_bytes(rows, inputs)
///   multiplier.multiply(rows, first panel, y of its columns);   // any panels, any order
///
/// Each output is one chain of multiply-adds over ascending inputs, whatever the rows and panels of the call.
/// In bf16 precision with bf16 weights it is a chain of dot products of two inputs each (odd, then even) with
/// Isa::avx512bf16, of tile products of 32 inputs each with Isa::amx. Both flush subnormal inputs and sums to
/// zero.
struct PackedRows {
  std::byte* scratch = nullptr;
  /// But for AMX: [blocks of kBlockInputs][rows][kRowStride], inputs or pairs, zeros up to an even number.
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
};

class Multiplier {
 public:
  /// `weight` must outlive it.
  Multiplier(const OpContext& context, const PackedMatrix& weight);
  /// By these dot products, or on these tiles (tests bring emulated ones); weights must be bf16.
  Multiplier(const KernelTable& dots, const PackedMatrix& weight);
  Multiplier(const AmxKernels& amx, const PackedMatrix& weight);

  /// Up to so many rows `workers` share the panels of a product. More are cut into blocks of rows, each worth
  /// a worker's own pass over all weights.
  std::int64_t most_shared_rows(int workers) const {
    const std::int64_t least_own = amx_ != nullptr ? 32 : 2 * table_.max_rows;
    return workers == 1 ? 0 : workers * least_own - 1;
  }
  /// Rows of one pack at most, for its size and the reuse of weights in L1; no limit of the product's.
  std::int64_t most_rows() const { return amx_ != nullptr ? 128 : 112; }
  /// Panels that keep the FMA or tile units busy: the grain for splitting panels of a product over workers.
  std::int64_t panel_grain(std::int64_t rows) const;

  std::size_t scratch_bytes(std::int64_t rows, std::int64_t inputs) const;
  /// In bf16 precision x must hold bf16 values. `scratch`: 64-byte aligned, in use until the last multiply().
  PackedRows pack(ConstMatrix x, std::byte* scratch) const;

  /// y: the product's columns from kPanel * first_panel on, y.cols of them (whole panels, or up to the last
  /// output). With `fetch` its lines are asked for ahead of the products: for a y beyond the caches of a
  /// core.
  void multiply(const PackedRows& x, std::int64_t first_panel, Matrix y, bool fetch = false) const;

 private:
  void multiply_few(const PackedRows& x, std::int64_t first_panel, Matrix y) const;
  void multiply_many(const PackedRows& x, std::int64_t first_panel, Matrix y, bool fetch) const;

  const KernelTable& table_;
  const AmxKernels* amx_;  // null where the table's kernels do the product
  const PackedMatrix& weight_;
};

}  // namespace asynct::linear
