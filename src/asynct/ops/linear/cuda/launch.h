#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/linear/cuda/linear.h"
#include "asynct/ops/linear/cuda/policy.h"

// The kernels behind run_linear, which checks arguments before. All give the same bits.
namespace asynct::cuda {

/// What slices and tiles are told alike.
template <class Traits>
TileArgs tile_args(const LinearWeight& weight, const LinearInput& x, std::int32_t rows) {
  return {.weight = weight.tile_maps[tile_map_of(Traits::kWeightBox)],
          .input = x.tile_maps[tile_map_of(Traits::kTokens)],
          .rows = rows,
          .outputs = weight.outputs,
          .steps = weight.inputs / weight.parts / 64,
          .parts = weight.parts};
}

/// For few rows.
template <class Epilogue>
void launch_stream(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream);

/// For more rows, of which linear_tile() chooses the tile: one that slices,
template <class Epilogue>
void launch_slices(const LinearTile& tile, const LinearWeight& weight, const LinearInput& x,
                   std::int32_t rows, const Epilogue& epilogue, cudaStream_t stream);

/// or one that does not.
template <class Epilogue>
void launch_tiles(const LinearTile& tile, const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream);

}  // namespace asynct::cuda
