#include "asynct/ops/linear/cuda/slice.cuh"

#include <algorithm>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {
namespace {

constexpr int kMostSliceShared = 232448;

template <class Traits, class Epilogue>
void launch_slices_of(const LinearWeight& weight, const LinearInput& x, std::int32_t rows, int most_stages,
                      const Epilogue& epilogue, cudaStream_t stream) {
  TileArgs args = {.weight = weight.tile_maps[tile_map_of(Traits::kWeightBox)],
                   .input = x.tile_maps[tile_map_of(Traits::kTokens)],
                   .rows = rows,
                   .outputs = weight.outputs,
                   .steps = weight.inputs / weight.parts / 64,
                   .parts = weight.parts};
  const int fit = (kMostSliceShared - Traits::shared_bytes(0, args.parts)) / (Traits::kStageBytes + 16);
  args.stages = std::min({fit, most_stages, args.steps * args.parts});
  prepare<slice_kernel<Traits, Epilogue>>(kMostSliceShared);
  cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {
      .gridDim = {static_cast<unsigned>((weight.outputs + Traits::kOutputs - 1) / Traits::kOutputs),
                  static_cast<unsigned>((rows + Traits::kTokens - 1) / Traits::kTokens)},
      .blockDim = Traits::kThreads,
      .dynamicSmemBytes = static_cast<std::size_t>(Traits::shared_bytes(args.stages, args.parts)),
      .stream = stream,
      .attrs = &overlap,
      .numAttrs = 1};
  check(cudaLaunchKernelEx(&config, slice_kernel<Traits, Epilogue>, args, epilogue), "linear");
}

}  // namespace
}  // namespace asynct::cuda
