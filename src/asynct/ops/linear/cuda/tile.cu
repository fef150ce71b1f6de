#include "asynct/ops/linear/cuda/tile.cuh"

#include <algorithm>
#include <atomic>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {

namespace {

constexpr int kMostTileShared = 232448;

template <class Traits, class Epilogue>
void launch(const LinearWeight& weight, const LinearInput& x, std::int32_t rows, int most_stages,
            const Epilogue& epilogue, cudaStream_t stream) {
  constexpr int kTokens = Traits::kTokens * Traits::kTokenBlocks;
  constexpr int kOutputs = Traits::kOutputs * Traits::kOutputBlocks;
  constexpr int kFit =
      (kMostTileShared - Traits::shared_bytes(0)) / (Traits::shared_bytes(1) - Traits::shared_bytes(0));
  static_assert(kFit >= 2, "a stage is free when the next one has been begun");
  const TileArgs args = {.weight = weight.tile_maps[tile_map_of(Traits::kWeightBox)],
                         .input = x.tile_maps[tile_map_of(Traits::kInputBox)],
                         .rows = rows,
                         .outputs = weight.outputs,
                         .steps = weight.inputs / weight.parts / 64,
                         .parts = weight.parts,
                         .stages = std::min(kFit, most_stages),
                         .group = std::max(1, 2048 / kTokens),
                         .token_tiles = (rows + kTokens - 1) / kTokens,
                         .output_tiles = (weight.outputs + kOutputs - 1) / kOutputs};
  const auto kernel = tile_kernel<Traits, Epilogue>;
  const int multiprocessors = prepare<tile_kernel<Traits, Epilogue>>(kMostTileShared);
  cudaLaunchAttribute attributes[2] = {{.id = cudaLaunchAttributeProgrammaticStreamSerialization},
                                       {.id = cudaLaunchAttributeClusterDimension}};
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].val.clusterDim = {Traits::kCluster, 1, 1};
  cudaLaunchConfig_t config = {
      .gridDim = static_cast<unsigned>(multiprocessors / Traits::kCluster * Traits::kCluster),
      .blockDim = Traits::kThreads,
      .dynamicSmemBytes = static_cast<std::size_t>(Traits::shared_bytes(args.stages)),
      .stream = stream,
      .attrs = attributes,
      .numAttrs = Traits::kCluster == 1 ? 1U : 2U};
  int most = multiprocessors;
  if (Traits::kCluster > 1) {
    static std::atomic<int> known = 0;
    if (known.load() == 0) {
      int count = 0;
      check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), "cudaOccupancyMaxActiveClusters");
      known.store(std::max(1, count));
    }
    most = known.load();
  }
  const int clusters = std::min(args.token_tiles * args.output_tiles, most);
  config.gridDim = static_cast<unsigned>(clusters * Traits::kCluster);
  check(cudaLaunchKernelEx(&config, kernel, args, epilogue), "linear");
}

}  // namespace

template <class Epilogue>
void launch_tiles(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream) {
  launch<TileTraits<2, 128, 2, 2, true>>(weight, x, rows, 100, epilogue, stream);
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
