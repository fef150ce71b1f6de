#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include "asynct/tensor/dtype.h"

namespace asynct::cuda {

/// A tensor of up to 5 dimensions as the copy engine sees it, innermost first. Innermost elements are
/// contiguous; strides are in bytes, multiples of 16; a box is what one copy brings, its innermost row at
/// most 128 bytes. Boxes lie in shared memory with 128-byte rows whose 16-byte pieces are exclusive-ored with
/// the row's number modulo 8.
struct TensorMapShape {
  DType dtype = DType::bf16;
  std::array<std::uint64_t, 5> size = {1, 1, 1, 1, 1};
  std::array<std::uint64_t, 4> stride = {};  // of dimensions 1 to 4
  std::array<std::uint32_t, 5> box = {1, 1, 1, 1, 1};
};

/// Strides of bf16 and fp16 tensors.
constexpr std::uint64_t bytes_of_16_bit(std::int64_t elements) {
  return static_cast<std::uint64_t>(2 * elements);
}

/// Error when the driver refuses it.
CUtensorMap make_tensor_map(const void* data, const TensorMapShape& shape);

}  // namespace asynct::cuda
