#include "asynct/ops/linear/packed_matrix.h"

#include <cstring>

#include "asynct/base/checked.h"

namespace asynct::linear {
namespace {

// Inputs a panel has room for: pairs for the FMA kernels, rows of 32 for AMX.
std::int64_t padded_inputs(std::int64_t inputs, Storage storage) {
  const std::int64_t unit = storage == Storage::bf16 ? 32 : 2;
  return (inputs + unit - 1) / unit * unit;
}

// Writes one row of weights into column `lane` of a zeroed panel.
template <class T>
void scatter_row(const T* row, std::int64_t inputs, bool pairs, int lane, T* panel) {
  for (std::int64_t k = 0; k < inputs; ++k)
    panel[pairs ? (k / 2 * kPanel + lane) * 2 + k % 2 : k * kPanel + lane] = row[k];
}

}  // namespace

PackedMatrix PackedMatrix::outline(DType dtype, std::int64_t outputs, std::int64_t inputs) {
  PackedMatrix matrix;
  matrix.inputs_ = inputs;
  matrix.outputs_ = outputs;
  matrix.storage_ = storage_of(dtype, "weights of a product");
  matrix.panel_bytes_ =
      padded_inputs(inputs, matrix.storage_) * kPanel * static_cast<std::int64_t>(size_of(dtype));
  return matrix;
}

std::size_t PackedMatrix::bytes() const {
  return checked_mul(static_cast<std::size_t>(panels()), static_cast<std::size_t>(panel_bytes_),
                     "packed weights");
}

PackedMatrix::PackedMatrix(ThreadPool& pool, std::span<const TensorView> parts, Arena& memory) {
  assert(!parts.empty());
  std::int64_t outputs = 0;
  for (const TensorView& part : parts) {
    if (part.dtype != parts[0].dtype)
      fail("stacked weights have types ", name(parts[0].dtype), " and ", name(part.dtype), "; expected one");
    if (part.shape.rank() != 2 || part.shape[1] != parts[0].shape[1])
      fail("stacked weights have shapes ", parts[0].shape.to_string(), " and ", part.shape.to_string(),
           "; expected one number of inputs");
    outputs += part.shape[0];
  }
  *this = outline(parts[0].dtype, outputs, parts[0].shape[1]);
  packed_ = memory.take(bytes());

  pool.parallel_for(panels(), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::byte* const to = packed_.data() + p * panel_bytes_;
      std::memset(to, 0, static_cast<std::size_t>(panel_bytes_));
      for (int lane = 0; lane < kPanel; ++lane) {
        std::int64_t row = p * kPanel + lane;
        const TensorView* part = parts.data();
        while (part != parts.data() + parts.size() && row >= part->shape[0]) row -= (part++)->shape[0];
        if (part == parts.data() + parts.size()) break;
        if (storage_ == Storage::f32)
          scatter_row(static_cast<const float*>(part->data) + row * inputs_, inputs_, false, lane,
                      reinterpret_cast<float*>(to));
        else
          scatter_row(static_cast<const std::uint16_t*>(part->data) + row * inputs_, inputs_,
                      storage_ == Storage::bf16, lane, reinterpret_cast<std::uint16_t*>(to));
      }
    }
  });
}

}  // namespace asynct::linear
