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
      .blockDim = Traits::kThreads,
      .dynamicSmemBytes = static_cast<std::size_t>(Traits::shared_bytes(args.steps, args.parts)),
      .stream = stream,
      .attrs = &overlap,
      .numAttrs = 1};
  check(cudaLaunchKernelEx(&config, panel_kernel<Traits, Epilogue>, args, epilogue), "linear");
}

template <int kTokens, int kGroups, class Epilogue>
void launch_panel_by_outputs(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                             const Epilogue& epilogue, cudaStream_t stream) {
  switch (panel_outputs(weight.outputs)) {
    case 8:
      return launch_panel_of<PanelTraits<kTokens, 8, kGroups>>(weight, x, rows, epilogue, stream);
    case 16:
      return launch_panel_of<PanelTraits<kTokens, 16, kGroups>>(weight, x, rows, epilogue, stream);
    case 32:
      return launch_panel_of<PanelTraits<kTokens, 32, kGroups>>(weight, x, rows, epilogue, stream);
    default:
      return launch_panel_of<PanelTraits<kTokens, 48, kGroups>>(weight, x, rows, epilogue, stream);
  }
}

}  // namespace

template <class Epilogue>
void launch_panel(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream) {
  if (rows <= 8)
    launch_panel_by_outputs<8, 4>(weight, x, rows, epilogue, stream);
  else
    launch_panel_by_outputs<16, 4>(weight, x, rows, epilogue, stream);
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
