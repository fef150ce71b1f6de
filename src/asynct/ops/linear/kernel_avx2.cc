#include "asynct/ops/simd/vec_avx2.h"

#include "asynct/ops/linear/fma_kernels.h"

namespace asynct::linear {
namespace {

// 16 registers: a tile of 6 rows and one panel needs 12 sums, 2 weights and 1 input. Few rows need more
// panels, so that 8 or more chains of additions hide the latency of an FMA (4 cycles, 2 a cycle).
struct Limits {
  static constexpr int kRows = 6;
  static constexpr int kTilePanels = 1;
  static constexpr int panels(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
};

}  // namespace

constinit const KernelTable kAvx2Kernels = make_table<Limits>();

}  // namespace asynct::linear
