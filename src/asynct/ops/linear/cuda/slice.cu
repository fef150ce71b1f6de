#include "asynct/ops/linear/cuda/slice.cuh"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {
namespace {

template <class Traits, class Epilogue>
void launch(const LinearWeight& weight, const LinearInput& x, std::int32_t rows, const Epilogue& epilogue,
            cudaStream_t stream) {
  TileArgs args = tile_args<Traits>(weight, x, rows);
  // Each stage is always the same warpgroup's, and a stage is free when its next one has been begun.
  const int fit = (kMostSharedBytes - Traits::shared_bytes(0, args.parts)) / (Traits::kStageBytes + 16);
  args.stages = std::min(fit, args.steps * args.parts) / Traits::kGroups * Traits::kGroups;
  prepare<slice_kernel<Traits, Epilogue>>(kMostSharedBytes);
  const dim3 grid(static_cast<unsigned>((weight.outputs + Traits::kOutputs - 1) / Traits::kOutputs),
                  static_cast<unsigned>((rows + Traits::kTokens - 1) / Traits::kTokens));
  launch_overlapped(slice_kernel<Traits, Epilogue>, "linear",
                    {.grid = grid,
                     .block = Traits::kThreads,
                     .shared_bytes = Traits::shared_bytes(args.stages, args.parts)},
                    stream, args, epilogue);
}

}  // namespace

template <class Epilogue>
void launch_slices(const LinearTile& tile, const LinearWeight& weight, const LinearInput& x,
                   std::int32_t rows, const Epilogue& epilogue, cudaStream_t stream) {
  if (weight.parts % kSliceGroups != 0)
    fail("linear: slices of ", weight.parts, " parts, expected a multiple of ", kSliceGroups);
  if (tile.outputs == 16) return launch<SliceTraits<16>>(weight, x, rows, epilogue, stream);
  if (tile.outputs == 32) return launch<SliceTraits<32>>(weight, x, rows, epilogue, stream);
  fail("linear: no slices of ", tile.outputs, " outputs");
}

template void launch_slices(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                            const StoreBf16&, cudaStream_t);
template void launch_slices(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                            const StoreFloat&, cudaStream_t);
template void launch_slices(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                            const StoreReglu&, cudaStream_t);
template void launch_slices(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                            const AddResidual&, cudaStream_t);

}  // namespace asynct::cuda
