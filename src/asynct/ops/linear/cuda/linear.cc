#include "asynct/ops/linear/cuda/linear.h"

#include <string_view>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/tensor_map.h"
#include "asynct/ops/linear/cuda/policy.h"

namespace asynct::cuda {
namespace {

/// Boxes of kStreamDepth columns: 64 of all rows, then the next 64.
CUtensorMap matrix_map(const void* data, std::int32_t rows, std::int32_t columns, std::int64_t stride,
                       std::int32_t box_rows) {
  TensorMapShape shape = {.dtype = DType::bf16};
  const auto row_bytes = bytes_of_16_bit(stride);
  shape.size = {64, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns / 64), 1, 1};
  shape.stride = {row_bytes, 128, row_bytes, row_bytes};
  shape.box = {64, static_cast<std::uint32_t>(box_rows), kStreamDepth / 64, 1, 1};
  return make_tensor_map(data, shape);
}

void expect_matrix(std::string_view what, const void* data, std::int32_t rows, std::int32_t columns,
                   std::int64_t stride) {
  if (rows < 1) fail("linear: ", what, " of ", rows, " rows, expected at least 1");
  if (columns < 64 || columns % 64 != 0)
    fail("linear: ", what, " of ", columns, " inputs, expected a multiple of 64");
  if (stride < columns || stride % 8 != 0)
    fail("linear: ", what, " with rows ", stride, " elements apart, expected a multiple of 8 from ", columns);
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
    fail("linear: ", what, " at an address that is no multiple of 16 bytes");
}

}  // namespace

LinearWeight make_linear_weight(const void* weight, std::int32_t outputs, std::int32_t inputs,
                                std::int64_t stride) {
  expect_matrix("weight", weight, outputs, inputs, stride);
  if (outputs % 8 != 0) fail("linear: weight of ", outputs, " outputs, expected a multiple of 8");
  return {matrix_map(weight, outputs, inputs, stride, kStreamRows), outputs, inputs,
          linear_parts(outputs, inputs)};
}

LinearInput make_linear_input(const void* x, std::int32_t rows, std::int32_t inputs, std::int64_t stride) {
  expect_matrix("input", x, rows, inputs, stride);
  LinearInput input = {.rows = rows, .inputs = inputs};
  std::int32_t box = 8;
  for (CUtensorMap& map : input.maps) {
    map = matrix_map(x, rows, inputs, stride, box);
    box *= 2;
  }
  return input;
}

}  // namespace asynct::cuda
