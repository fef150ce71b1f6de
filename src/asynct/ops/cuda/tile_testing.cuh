#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "asynct/ops/cuda/device_buffer.h"

// For tests of the tile layer.
namespace asynct::cuda {

using Words = std::vector<std::uint32_t>;
using Halves = std::vector<std::uint16_t>;
inline constexpr std::uint32_t kPoisonWord = 0xFFFFFFFF;

template <class T>
DeviceBuffer<T> poisoned(std::size_t size) {
  DeviceBuffer<T> buffer(size);
  buffer.fill_bytes(0xFF);
  return buffer;
}

/// Some 10 us: long enough that who does not wait is seen.
__device__ inline void dawdle() {
  const long long start = clock64();
  while (clock64() - start < 20000) {
  }
}

}  // namespace asynct::cuda
