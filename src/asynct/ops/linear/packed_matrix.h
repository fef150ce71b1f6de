#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "asynct/base/thread_pool.h"
#include "asynct/ops/linear/kernels.h"
#include "asynct/tensor/tensor.h"

namespace asynct::linear {

/// A weight matrix [outputs, inputs] in panels of kPanel outputs, one after another, zeros beyond its edges.
/// A panel is [inputs][kPanel]; in bf16 [inputs / 2][kPanel][2], so that a vector of dwords holds two inputs
/// of each output: one shift or mask widens it, VDPBF16PS multiplies it as it is, and a tile of 16 such rows
/// is what AMX multiplies.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Matrices [n_i, k] of one dtype (f32, bf16 or f16), stacked along n.
  PackedMatrix(ThreadPool& pool, std::span<const TensorView> parts, Arena& memory);

  /// The same sizes and no weights: what a matrix will take is known before it is packed.
  static PackedMatrix outline(DType dtype, std::int64_t outputs, std::int64_t inputs);

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }
  std::int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }
  Storage storage() const { return storage_; }
  std::int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(std::int64_t index) const { return packed_.data() + index * panel_bytes_; }
  std::size_t bytes() const;

 private:
  std::int64_t inputs_ = 0;
  std::int64_t outputs_ = 0;
  std::int64_t panel_bytes_ = 0;
  Storage storage_ = Storage::f32;
  Buffer packed_;
};

}  // namespace asynct::linear
