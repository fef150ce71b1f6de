#pragma once

#include <cstdint>

// Private to FeedForward: kernels over neuron-major weights, that is, one row [d] a neuron. Included by units
// compiled with -m flags, hence no inline functions here.
namespace asynct::feed_forward {

/// Rows of weights are padded with zeros to a multiple of this. In bf16 a group of 32 is stored as 16 dwords,
/// dword i holding element i (low) and 16 + i (high): one shift or mask widens 16 neighbours.
constexpr int kGroup = 32;

enum class Storage { f32, bf16, f16 };
constexpr int kStorages = 3;

struct Rows {
  const void* data;
  std::int64_t row_bytes;
};

/// Kernels of one ISA; arrays by Storage.
struct KernelTable {
  /// Positions i < count with gate[i] > 0 or NaN, ascending, into index (room for count + 16); how many.
  std::int64_t (*find_active)(const float* gate, std::int64_t count, std::int32_t* index);

  /// out[j] = <x, row index[j]> for x [length], length a multiple of kGroup: lane l of 16 sums elements l,
  /// l + 16, ... in order, then lanes l and l + 8 are added, l and l + 4, l + 2, l + 1.
  void (*dots[kStorages])(const float* x, std::int64_t length, const Rows& rows, const std::int32_t* index,
                          std::int64_t count, float* out);

  /// y[c] (+)= sum_j h[j] * row index[j][first + c], c < columns, j ascending in one chain; first is a
  /// multiple of kGroup. Without `accumulate` the chain starts at 0.
  void (*accumulate_rows[kStorages])(const float* h, const Rows& rows, const std::int32_t* index,
                                     std::int64_t count, std::int64_t first, std::int64_t columns,
                                     bool accumulate, float* y);

  /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
  void (*silu_product)(float* gate, const float* up, std::int64_t count);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::feed_forward
