#pragma once

#include <cstddef>
#include <cstdint>

#include "asynct/base/thread_pool.h"
#include "asynct/ops/feed_forward/kernels.h"
#include "asynct/tensor/tensor.h"

namespace asynct::feed_forward {

/// Weights with a row for each neuron, padded with zeros to whole groups and arranged as kernels.h says, so
/// that an inactive neuron's weights are never read.
class NeuronRows {
 public:
  NeuronRows() = default;
  /// [F, d] as it is (up), or [d, F] transposed (down): neurons are its columns then.
  NeuronRows(ThreadPool& pool, const TensorView& weight, bool transposed, Arena& memory);

  /// The same sizes and no weights.
  static NeuronRows outline(DType dtype, std::int64_t neurons, std::int64_t elements);

  Rows rows() const { return {packed_.data(), row_bytes_}; }
  std::int64_t length() const { return length_; }  // elements of a row, a multiple of kGroup
  Storage storage() const { return storage_; }
  std::size_t bytes() const;

 private:
  std::int64_t neurons_ = 0;
  std::int64_t length_ = 0;
  std::int64_t row_bytes_ = 0;
  Storage storage_ = Storage::f32;
  Buffer packed_;
};

}  // namespace asynct::feed_forward
