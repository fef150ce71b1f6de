#pragma once

#include <cstddef>
#include <cstdint>

#include "asynct/ops/storage.h"

// Private to the products: what the driver (multiply.cc) and the kernels of each ISA agree on. Included by
// units compiled with -m flags, hence no inline functions here.
namespace asynct::linear {

/// Outputs of a weight panel: one AVX-512 register, two of AVX2.
constexpr int kPanel = 16;

/// Inputs of a block of packed activations. A block of 14 rows is 15 KB and a widened tile of two panels is
/// 32 KB, so that both stay in a 48 KB L1 during one call of a kernel.
constexpr int kBlockInputs = 256;

/// Floats between the rows of a block: 17 cache lines, so that the rows of a tile fall into different sets.
constexpr int kRowStride = kBlockInputs + 16;

/// One call of a tile kernel. Where the kernels are dot products, an input is a pair of bf16 in the dword of
/// a float. c[r, n] (+)= sum_k a[r, k] * b[n, k] over R rows and P panels (template parameters of the
/// kernel), k ascending in every lane.
struct TileArgs {
  const float* a;             // [blocks of inputs][rows of the pack][kRowStride]
  std::int64_t block_stride;  // floats between blocks of a
  const void* b;              // first panel
  std::int64_t panel_stride;  // bytes between panels
  std::int64_t inputs;        // even
  float* c;
  std::int64_t c_stride;
  std::int64_t columns;  // valid columns of c, (P - 1) * kPanel < columns <= P * kPanel
  bool accumulate;       // start from c (an earlier block of inputs) instead of 0
  bool fetch = false;    // ask for c's lines before the products: they lie in no cache nearby
};
using TileKernel = void (*)(const TileArgs&);

constexpr int kMaxRows = 14;
constexpr int kPanelCounts = 4;  // 1, 2, 4 and 8 panels

/// Writes `inputs` bf16 values, which floats hold, as pairs [ceil(inputs / 2)] and zeros up to an even number
/// of pairs.
using PackPairs = void (*)(const float* x, std::int64_t inputs, float* pairs);

/// Kernels of one ISA.
struct KernelTable {
  int max_rows;     // rows a tile may have, <= kMaxRows
  int tile_panels;  // panels of the widened tile of many rows
  /// tile[storage][rows - 1][log2(panels)]; null where the accumulators would not fit the registers.
  TileKernel tile[kStorages][kMaxRows][kPanelCounts];
  /// Widens `inputs` (even) inputs of a panel to float [inputs][kPanel].
  void (*widen[kStorages])(const void* panel, std::int64_t inputs, float* out);
  /// Not null: the kernels are dot products of pairs, for bf16 rows and bf16 weights only; nothing is
  /// widened.
  PackPairs pack_pairs;
};

/// Columns of y = rows of a pack * panels of bf16 weights, on the processor's matrix tiles.
struct AmxArgs {
  std::byte* scratch;  // the pack and room for partial sums
  std::int64_t rows;   // of the pack
  std::int64_t inputs;
  const std::byte* b;         // first panel, padded to 32 inputs
  std::int64_t panel_stride;  // bytes between panels
  float* y;
  std::int64_t y_stride;
  std::int64_t columns;  // of y
  bool fetch;            // as for TileArgs
};

/// Kernels of bf16 rows and bf16 weights for any number of rows (amx_product.h).
struct AmxKernels {
  std::size_t (*scratch_bytes)(std::int64_t rows, std::int64_t inputs);
  /// Rows of x, which hold bf16 values, to bf16 tiles in the scratch.
  void (*pack)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t inputs,
               std::byte* scratch);
  void (*multiply)(const AmxArgs& args);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
extern const AmxKernels kAmxKernels;

}  // namespace asynct::linear
