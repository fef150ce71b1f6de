#pragma once

#include <algorithm>
#include <cstdint>

// How the kernels with an RMS norm cut their vectors into blocks. No result depends on it: a vector is added
// up in one order, wherever it lies.
namespace asynct::cuda {

inline constexpr std::int32_t kRmsThreads = 128;
inline constexpr std::int32_t kRmsLanes = 16;            // of a vector's sum: the CPU's
inline constexpr std::int32_t kRmsElements = 2048;       // of a block that has several vectors
inline constexpr std::int32_t kRmsFewBlocks = 2 * 132;   // of fewer, multiprocessors would have nothing to do
inline constexpr std::int32_t kMostRmsDims = 56 * 1024;  // on Hopper; other devices' blocks hold less

/// Floats from a vector to the next: in the 16 behind each stands its factor, and they move every second
/// vector to the other half of the banks.
constexpr std::int32_t rms_stride(std::int32_t dims) { return dims + kRmsLanes; }

/// Dims that fit into so much shared memory of a block.
constexpr std::int32_t rms_most_dims(std::int32_t shared_bytes) {
  return std::min(kMostRmsDims, shared_bytes / static_cast<std::int32_t>(sizeof(float)) - kRmsLanes);
}

struct RmsGrid {
  std::int32_t vectors = 1;  // of a block
  std::int64_t blocks = 1;
  std::int32_t shared_bytes = 0;
};

constexpr RmsGrid rms_grid(std::int64_t vectors, std::int32_t dims) {
  RmsGrid grid;
  const std::int64_t most = std::max(1, kRmsElements / dims);
  grid.vectors = static_cast<std::int32_t>(std::clamp<std::int64_t>(vectors / kRmsFewBlocks, 1, most));
  grid.blocks = (vectors + grid.vectors - 1) / grid.vectors;
  grid.shared_bytes = grid.vectors * rms_stride(dims) * static_cast<std::int32_t>(sizeof(float));
  return grid;
}

}  // namespace asynct::cuda
