#include "asynct/ops/linear/cuda/tile.cuh"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/linear/cuda/launch.h"

namespace asynct::cuda {
namespace {

constexpr int kGroupTokens = 2048;  // that go through all weights together

template <class Traits, class Epilogue>
void launch(const LinearWeight& weight, const LinearInput& x, std::int32_t rows, const Epilogue& epilogue,
            cudaStream_t stream) {
  constexpr int kStages =
      (kMostSharedBytes - Traits::shared_bytes(0)) / (Traits::shared_bytes(1) - Traits::shared_bytes(0));
  static_assert(kStages >= 2, "a stage is free when the next one has been begun");
  TileArgs args = tile_args<Traits>(weight, x, rows);
  args.stages = kStages;
  args.group = kGroupTokens / Traits::kTokens;
  args.token_tiles = (rows + Traits::kTokens - 1) / Traits::kTokens;
  args.output_tiles = (weight.outputs + Traits::kOutputs - 1) / Traits::kOutputs;
  const int multiprocessors = prepare<tile_kernel<Traits, Epilogue>>(kMostSharedBytes);
  const int blocks = std::min(args.token_tiles * args.output_tiles, multiprocessors);
  launch_overlapped(tile_kernel<Traits, Epilogue>, "linear",
                    {.grid = static_cast<unsigned>(blocks),
                     .block = Traits::kThreads,
                     .shared_bytes = Traits::shared_bytes(kStages)},
                    stream, args, epilogue);
}

}  // namespace

template <class Epilogue>
void launch_tiles(const LinearTile& tile, const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream) {
  const auto is = [&](std::int32_t tokens, std::int32_t outputs) {
    return tile.tokens == tokens && tile.outputs == outputs;
  };
  if (is(64, 64)) return launch<TileTraits<64, 64, true>>(weight, x, rows, epilogue, stream);
  if (is(64, 96)) return launch<TileTraits<64, 96, true>>(weight, x, rows, epilogue, stream);
  if (is(64, 128)) return launch<TileTraits<64, 128, true>>(weight, x, rows, epilogue, stream);
  if (is(128, 96)) return launch<TileTraits<128, 96, true>>(weight, x, rows, epilogue, stream);
  if (is(128, 128)) return launch<TileTraits<128, 128, true>>(weight, x, rows, epilogue, stream);
  if (is(128, 192)) return launch<TileTraits<128, 192, true>>(weight, x, rows, epilogue, stream);
  if (is(128, 256)) return launch<TileTraits<128, 256, false>>(weight, x, rows, epilogue, stream);
  fail("linear: no tile of ", tile.tokens, " tokens and ", tile.outputs, " outputs");
}

template void launch_tiles(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                           const StoreBf16&, cudaStream_t);
template void launch_tiles(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                           const StoreFloat&, cudaStream_t);
template void launch_tiles(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                           const StoreReglu&, cudaStream_t);
template void launch_tiles(const LinearTile&, const LinearWeight&, const LinearInput&, std::int32_t,
                           const AddResidual&, cudaStream_t);

}  // namespace asynct::cuda
