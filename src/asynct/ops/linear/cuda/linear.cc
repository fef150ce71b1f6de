#include "asynct/ops/linear/cuda/linear.h"

#include <string_view>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/tensor_map.h"
#include "asynct/ops/linear/cuda/launch.h"
#include "asynct/ops/linear/cuda/policy.h"

namespace asynct::cuda {
namespace {

/// Boxes of `box_columns` columns: 64 of all rows, then the next 64.
CUtensorMap matrix_map(const void* data, std::int32_t rows, std::int32_t columns, std::int64_t stride,
                       std::int32_t box_rows, std::int32_t box_columns) {
  TensorMapShape shape = {.dtype = DType::bf16};
  const auto row_bytes = bytes_of_16_bit(stride);
  shape.size = {64, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns / 64), 1, 1};
  shape.stride = {row_bytes, 128, row_bytes, row_bytes};
  shape.box = {64, static_cast<std::uint32_t>(box_rows), static_cast<std::uint32_t>(box_columns / 64), 1, 1};
  return make_tensor_map(data, shape);
}

TileMaps tile_maps(const void* data, std::int32_t rows, std::int32_t columns, std::int64_t stride) {
  TileMaps maps;
  std::int32_t box = 8;
  for (CUtensorMap& map : maps) {
    map = matrix_map(data, rows, columns, stride, box, 64);
    box *= 2;
  }
  return maps;
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

void expect_rows(std::string_view what, const void* data, std::int64_t stride, std::int32_t columns) {
  if (data == nullptr || reinterpret_cast<std::uintptr_t>(data) % 8 != 0)
    fail("linear: ", what, " is null or at an address that is no multiple of 8 bytes");
  if (stride < columns || stride % 2 != 0)
    fail("linear: ", what, " with rows ", stride, " elements apart, expected an even number from ", columns);
}

void expect_epilogue(const StoreBf16& to, std::int32_t outputs) {
  expect_rows("output", to.out, to.stride, outputs);
}
void expect_epilogue(const StoreFloat& to, std::int32_t outputs) {
  expect_rows("output", to.out, to.stride, outputs);
}
void expect_epilogue(const StoreReglu& to, std::int32_t outputs) {
  expect_rows("output", to.out, to.stride, outputs / 2);
}
void expect_epilogue(const AddResidual& to, std::int32_t outputs) {
  expect_rows("residual", to.residual, to.residual_stride, outputs);
  if (to.next_input != nullptr) expect_rows("next input", to.next_input, to.next_stride, outputs);
  for (const DyhtView* norm : {&to.post, &to.next})
    if (norm->alpha != nullptr && norm->gamma == nullptr) fail("linear: a norm has alpha but no gamma");
}

}  // namespace

LinearWeight make_linear_weight(const void* weight, std::int32_t outputs, std::int32_t inputs,
                                std::int64_t stride) {
  expect_matrix("weight", weight, outputs, inputs, stride);
  if (outputs % 8 != 0) fail("linear: weight of ", outputs, " outputs, expected a multiple of 8");
  return {.map = matrix_map(weight, outputs, inputs, stride, kStreamRows, kStreamDepth),
          .tile_maps = tile_maps(weight, outputs, inputs, stride),
          .outputs = outputs,
          .inputs = inputs,
          .parts = linear_parts(outputs, inputs)};
}

LinearInput make_linear_input(const void* x, std::int32_t rows, std::int32_t inputs, std::int64_t stride) {
  expect_matrix("input", x, rows, inputs, stride);
  LinearInput input = {.tile_maps = tile_maps(x, rows, inputs, stride), .rows = rows, .inputs = inputs};
  std::int32_t box = 8;
  for (CUtensorMap& map : input.maps) {
    map = matrix_map(x, rows, inputs, stride, box, kStreamDepth);
    box *= 2;
  }
  return input;
}

void run_linear(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                const LinearEpilogue& epilogue, cudaStream_t stream) {
  if (x.inputs != weight.inputs)
    fail("linear: input of ", x.inputs, " columns, expected the weight's ", weight.inputs);
  if (rows < 0 || rows > x.rows) fail("linear: ", rows, " rows, expected at most the input's ", x.rows);
  if (rows == 0) return;
  std::visit(
      [&](const auto& to) {
        expect_epilogue(to, weight.outputs);
        const LinearTile* const tile = linear_tile(rows, weight.outputs, weight.inputs);
        if (tile == nullptr)
          launch_stream(weight, x, rows, to, stream);
        else if (tile->slices)
          launch_slices(*tile, weight, x, rows, to, stream);
        else
          launch_tiles(*tile, weight, x, rows, to, stream);
      },
      epilogue);
}

}  // namespace asynct::cuda
