#include "asynct/ops/linear/cuda/tile.cuh"

#include <algorithm>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {

template <class Epilogue>
void launch_tiles(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream) {
  const TileArgs args = {.weight = weight.tile_map,
                         .input = x.tile_map,
                         .rows = rows,
                         .outputs = weight.outputs,
                         .steps = weight.inputs / weight.parts / 64,
                         .parts = weight.parts,
                         .token_pairs = (rows + 255) / 256,
                         .output_tiles = (weight.outputs + 127) / 128};
  const int multiprocessors = prepare<tile_kernel<Epilogue>>(kTileShared);
  const int clusters = std::min(args.token_pairs * args.output_tiles, multiprocessors / kTileCluster);
  cudaLaunchAttribute attributes[2] = {{.id = cudaLaunchAttributeProgrammaticStreamSerialization},
                                       {.id = cudaLaunchAttributeClusterDimension}};
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].val.clusterDim = {kTileCluster, 1, 1};
  const cudaLaunchConfig_t config = {.gridDim = static_cast<unsigned>(clusters * kTileCluster),
                                     .blockDim = kTileThreads,
                                     .dynamicSmemBytes = kTileShared,
                                     .stream = stream,
                                     .attrs = attributes,
                                     .numAttrs = 2};
  check(cudaLaunchKernelEx(&config, tile_kernel<Epilogue>, args, epilogue), "linear");
}

template void launch_tiles(const LinearWeight&, const LinearInput&, std::int32_t, const StoreBf16&,
                           cudaStream_t);
template void launch_tiles(const LinearWeight&, const LinearInput&, std::int32_t, const StoreFloat&,
                           cudaStream_t);
template void launch_tiles(const LinearWeight&, const LinearInput&, std::int32_t, const StoreReglu&,
                           cudaStream_t);
template void launch_tiles(const LinearWeight&, const LinearInput&, std::int32_t, const AddResidual&,
                           cudaStream_t);

}  // namespace asynct::cuda
