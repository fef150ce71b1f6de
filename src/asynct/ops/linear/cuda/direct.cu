#include "asynct/ops/linear/cuda/direct.cuh"

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/linear/cuda/launch.h"
#include "asynct/ops/linear/cuda/policy.h"

namespace asynct::cuda {
namespace {

template <int kSteps, class Epilogue>
void launch(const DirectArgs& args, const Epilogue& epilogue, cudaStream_t stream) {
  const int tiles = (args.outputs + kDirectRows - 1) / kDirectRows;
  const int multiprocessors = prepare<direct_kernel<kSteps, Epilogue>>(kDirectSharedBytes);
  // Small blocks to have one for each multiprocessor; larger ones when there are more than that.
  const int block_tiles = tiles >= 2 * multiprocessors && args.parts <= 4 ? 2 : 1;
  const int token_tiles = (args.rows + kDirectTokens - 1) / kDirectTokens;
  cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {
      .gridDim = static_cast<unsigned>((tiles + block_tiles - 1) / block_tiles),
      .blockDim = static_cast<unsigned>(32 * args.parts * block_tiles),
      .dynamicSmemBytes =
          static_cast<std::size_t>(direct_shared_bytes(args.parts * block_tiles, token_tiles)),
      .stream = stream,
      .attrs = &overlap,
      .numAttrs = 1};
  check(cudaLaunchKernelEx(&config, direct_kernel<kSteps, Epilogue>, args, epilogue), "linear");
}

}  // namespace

template <class Epilogue>
void launch_direct(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream) {
  const DirectArgs args = {.weight = weight.data,
                           .input = x.data,
                           .weight_stride = weight.stride,
                           .input_stride = x.stride,
                           .rows = rows,
                           .outputs = weight.outputs,
                           .parts = weight.parts};
  switch (direct_steps(weight.inputs, weight.parts)) {
    case 16:
      return launch<16>(args, epilogue, stream);
    case 24:
      return launch<24>(args, epilogue, stream);
    default:
      fail("linear: no direct kernel for ", weight.inputs, " inputs in ", weight.parts, " parts");
  }
}

template void launch_direct(const LinearWeight&, const LinearInput&, std::int32_t, const StoreBf16&,
                            cudaStream_t);
template void launch_direct(const LinearWeight&, const LinearInput&, std::int32_t, const StoreFloat&,
                            cudaStream_t);
template void launch_direct(const LinearWeight&, const LinearInput&, std::int32_t, const StoreReglu&,
                            cudaStream_t);
template void launch_direct(const LinearWeight&, const LinearInput&, std::int32_t, const AddResidual&,
                            cudaStream_t);

}  // namespace asynct::cuda
