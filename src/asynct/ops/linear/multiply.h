#pragma once

#include <cstddef>
#include <cstdint>

#include "asynct/base/cpu_features.h"
#include "asynct/ops/linear/kernels.h"
#include "asynct/ops/linear/packed_matrix.h"
#include "asynct/tensor/tensor.h"

namespace asynct::linear {

/// The serial product that Linear, FeedForward and Head spread over their workers:
///
///   const Multiplier multiplier(isa);
///   PackedRows rows = multiplier.pack(x, scratch);                      // scratch_bytes(rows, inputs)
///   multiplier.multiply(rows, weight, first panel, y of its columns);   // any panels, any order
///
/// Each output is one chain of multiply-adds over ascending inputs, whatever the rows and panels of the call.
struct PackedRows {
  const float* data = nullptr;  // [blocks of kBlockInputs][rows][kRowStride], zeros after an odd last input
  float* tile = nullptr;        // scratch of the product
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
};

class Multiplier {
 public:
  explicit Multiplier(Isa isa);

  /// Rows that are worth a worker's own pass over all weights.
  std::int64_t least_rows() const { return 2 * table_.max_rows; }
  /// Rows of one pack at most, for its size and the reuse of a widened tile; no limit of the product's.
  std::int64_t most_rows() const { return kPackedRows; }
  /// Panels that keep the FMA units busy: the grain for splitting panels of a product over workers.
  std::int64_t panel_grain(std::int64_t rows) const;

  std::size_t scratch_bytes(std::int64_t rows, std::int64_t inputs) const;
  PackedRows pack(ConstMatrix x, std::byte* scratch) const;

  /// y: the product's columns from kPanel * first_panel on, y.cols of them (whole panels, or up to the last
  /// output).
  void multiply(const PackedRows& x, const PackedMatrix& weight, std::int64_t first_panel, Matrix y) const;

 private:
  static constexpr std::int64_t kPackedRows = 112;

  void multiply_few(const PackedRows& x, const PackedMatrix& weight, std::int64_t first_panel,
                    Matrix y) const;
  void multiply_many(const PackedRows& x, const PackedMatrix& weight, std::int64_t first_panel,
                     Matrix y) const;

  const KernelTable& table_;
};

}  // namespace asynct::linear
