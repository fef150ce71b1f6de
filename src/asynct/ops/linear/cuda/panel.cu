#include "asynct/ops/linear/cuda/panel.cuh"

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"
#include "asynct/ops/linear/cuda/policy.h"

namespace asynct::cuda {
namespace {

constexpr int kMostPanelShared = 232448;

template <class Traits, class Epilogue>
void launch_panel_of(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                     const Epilogue& epilogue, cudaStream_t stream) {
  const PanelArgs args = {.weight = weight.panel_map,
                          .input = x.data,
                          .input_stride = x.stride,
                          .rows = rows,
                          .outputs = weight.outputs,
                          .steps = weight.inputs / weight.parts / 64,
                          .parts = weight.parts};
  prepare<panel_kernel<Traits, Epilogue>>(kMostPanelShared);
  cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {
      .gridDim = static_cast<unsigned>((weight.outputs + Traits::kOutputs - 1) / Traits::kOutputs),
      .blockDim = static_cast<unsigned>(32 * Traits::kSlices * args.parts),
      .dynamicSmemBytes = static_cast<std::size_t>(Traits::shared_bytes(rows, weight.inputs, args.parts)),
      .stream = stream,
      .attrs = &overlap,
      .numAttrs = 1};
  check(cudaLaunchKernelEx(&config, panel_kernel<Traits, Epilogue>, args, epilogue), "linear");
}

template <int kTiles, int kMore, class Epilogue>
void launch_panel_by_outputs(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                             const Epilogue& epilogue, cudaStream_t stream) {
  switch (panel_outputs(weight.outputs)) {
    case 8:
      return launch_panel_of<PanelTraits<8, 1, kTiles>>(weight, x, rows, epilogue, stream);
    case 16:
      return launch_panel_of<PanelTraits<16, kMore == 1 ? 1 : 2, kTiles>>(weight, x, rows, epilogue, stream);
    case 32:
      return launch_panel_of<PanelTraits<32, 2, kTiles>>(weight, x, rows, epilogue, stream);
    default:
      return launch_panel_of<PanelTraits<48, kMore, kTiles>>(weight, x, rows, epilogue, stream);
  }
}

}  // namespace

template <class Epilogue>
void launch_panel(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream) {
  if (rows <= 16)
    launch_panel_by_outputs<1, 2>(weight, x, rows, epilogue, stream);
  else
    launch_panel_by_outputs<2, 2>(weight, x, rows, epilogue, stream);
}

template void launch_panel(const LinearWeight&, const LinearInput&, std::int32_t, const StoreBf16&,
                           cudaStream_t);
template void launch_panel(const LinearWeight&, const LinearInput&, std::int32_t, const StoreFloat&,
                           cudaStream_t);
template void launch_panel(const LinearWeight&, const LinearInput&, std::int32_t, const StoreReglu&,
                           cudaStream_t);
template void launch_panel(const LinearWeight&, const LinearInput&, std::int32_t, const AddResidual&,
                           cudaStream_t);

}  // namespace asynct::cuda
