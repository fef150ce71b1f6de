#include "asynct/ops/simd/vec_scalar.h"

#include "asynct/ops/linear/fma_kernels.h"

namespace asynct::linear {
namespace {

struct Limits {
  static constexpr int kRows = 2;
  static constexpr int kTilePanels = 1;
  static constexpr int panels(int /*rows*/) { return 1; }
};

}  // namespace

constinit const KernelTable kScalarKernels = make_table<Limits>();

}  // namespace asynct::linear
