#include "asynct/ops/linear/cuda/stream.cuh"

#include <algorithm>
#include <bit>

#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {
namespace {

/// Stages and what is kept, for a block of `tiles` tiles in `most_bytes` of shared memory.
template <class Traits>
void choose_stages(StreamArgs& args, int tiles, int most_bytes) {
  const int left = most_bytes - Traits::shared_bytes(0, 0, args.parts);
  const int kept = args.steps * Traits::kInputBytes;
  args.keeps_input = tiles > 1 && left - kept >= 4 * Traits::kWeightBytes;
  if (args.keeps_input)
    args.stages = (left - kept) / (Traits::kWeightBytes + 16);
  else
    args.stages = left / (Traits::kWeightBytes + Traits::kInputBytes + 16);
  args.stages = std::min(args.stages, tiles * args.steps);
  args.input_slots = args.keeps_input ? args.steps : args.stages;
}

/// Blocks that go through several tiles, a multiprocessor.
template <class Traits>
inline constexpr int kResident = Traits::kTokens <= 16 ? 2 : 1;

template <class Traits, class Epilogue>
void launch(StreamArgs args, const Epilogue& epilogue, cudaStream_t stream) {
  const int multiprocessors = prepare<stream_kernel<Traits, Epilogue>>(kMostSharedBytes);
  args.tiles = (args.outputs + Traits::kGroups * kStreamRows - 1) / (Traits::kGroups * kStreamRows);
  // Where K is not split a block goes through several tiles.
  constexpr int kBytes = kMostSharedBytes / kResident<Traits> - 1024;
  // A stage is free when the next one has been begun.
  static_assert(Traits::shared_bytes(2, 2, 2) <= kBytes, "two stages at least");
  const int blocks =
      args.parts == 1 ? std::min(args.tiles, kResident<Traits> * multiprocessors) : args.tiles * args.parts;
  choose_stages<Traits>(args, (args.tiles * args.parts + blocks - 1) / blocks, kBytes);
  const int token_tiles = (args.rows + Traits::kTokens - 1) / Traits::kTokens;
  launch_overlapped(stream_kernel<Traits, Epilogue>, "linear",
                    {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(token_tiles)),
                     .block = Traits::kThreads,
                     .shared_bytes = Traits::shared_bytes(args.stages, args.input_slots, args.parts),
                     .cluster = args.parts},
                    stream, args, epilogue);
}

}  // namespace

template <class Epilogue>
void launch_stream(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream) {
  const std::int32_t tokens = stream_tokens(rows);
  const StreamArgs args = {
      .weight = weight.map,
      .input = x.maps[static_cast<std::size_t>(std::countr_zero(static_cast<std::uint32_t>(tokens)) - 3)],
      .rows = rows,
      .outputs = weight.outputs,
      .steps = (weight.inputs / weight.parts + kStreamDepth - 1) / kStreamDepth,
      .parts = weight.parts};
  switch (tokens) {
    case 8:
      return launch<StreamTraits<8, 1>>(args, epilogue, stream);
    case 16:
      return launch<StreamTraits<16, 1>>(args, epilogue, stream);
    case 32:  // a head's tiles are many: fewer blocks read the input less often
      if (args.parts == 1) return launch<StreamTraits<32, 2>>(args, epilogue, stream);
      return launch<StreamTraits<32, 1>>(args, epilogue, stream);
    default:
      return launch<StreamTraits<64, 2>>(args, epilogue, stream);
  }
}

template void launch_stream(const LinearWeight&, const LinearInput&, std::int32_t, const StoreBf16&,
                            cudaStream_t);
template void launch_stream(const LinearWeight&, const LinearInput&, std::int32_t, const StoreFloat&,
                            cudaStream_t);
template void launch_stream(const LinearWeight&, const LinearInput&, std::int32_t, const StoreReglu&,
                            cudaStream_t);
template void launch_stream(const LinearWeight&, const LinearInput&, std::int32_t, const AddResidual&,
                            cudaStream_t);

}  // namespace asynct::cuda
