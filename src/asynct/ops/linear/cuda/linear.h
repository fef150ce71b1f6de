#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <variant>

#include "asynct/ops/linear/cuda/args.h"

namespace asynct::cuda {

/// Boxes of 8, 16, 32, 64, 128 rows (tile_map_of).
using TileMaps = std::array<CUtensorMap, 5>;

/// A weight as kernels want it, made once; the matrix stays where it is.
struct LinearWeight {
  CUtensorMap map;     // the streaming kernel's
  TileMaps tile_maps;  // the tile kernel's
  std::int32_t outputs = 0;
  std::int32_t inputs = 0;
  std::int32_t parts = 1;  // of K (policy.h): part of the reduction order
};

/// A buffer of inputs, made once; any number of its rows can be multiplied.
struct LinearInput {
  std::array<CUtensorMap, 4> maps;  // the streaming kernel's: boxes of 8, 16, 32, 64 rows
  TileMaps tile_maps;
  std::int32_t rows = 0;
  std::int32_t inputs = 0;
};

using LinearEpilogue = std::variant<StoreBf16, StoreFloat, StoreReglu, AddResidual>;

/// `weight`: bf16 [outputs, inputs], rows `stride` elements apart. Inputs are a multiple of 64, outputs of 8;
/// data and rows are aligned to 16 bytes. Error for anything else.
LinearWeight make_linear_weight(const void* weight, std::int32_t outputs, std::int32_t inputs,
                                std::int64_t stride);

/// `x`: bf16 [rows, inputs], rows `stride` elements apart, aligned to 16 bytes. Rows that are not multiplied
/// may hold anything.
LinearInput make_linear_input(const void* x, std::int32_t rows, std::int32_t inputs, std::int64_t stride);

/// The first `rows` rows of x times weight^T, summed in float, and what `epilogue` makes of them. Launches on
/// `stream` and does nothing else. A row's result is the same bits for any `rows`.
///
/// The kernel may begin before the one before it in the stream has ended. It reads its weight and the norms'
/// factors then, which must not be written by a kernel that may still be running; all else waits.
void run_linear(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                const LinearEpilogue& epilogue, cudaStream_t stream);

}  // namespace asynct::cuda
