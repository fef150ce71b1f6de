#include "asynct/ops/simd/vec_avx512.h"

#include "asynct/ops/linear/fma_kernels.h"

namespace asynct::linear {
namespace {

// 32 registers: a tile of 14 rows and two panels needs 28 sums, 2 weights and 1 input.
struct Limits {
  static constexpr int kRows = 14;
  static constexpr int kTilePanels = 2;
  static constexpr int panels(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }
};

}  // namespace

constinit const KernelTable kAvx512Kernels = make_table<Limits>();

}  // namespace asynct::linear
