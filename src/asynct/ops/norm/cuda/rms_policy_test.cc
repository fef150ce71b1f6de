#include "asynct/ops/norm/cuda/rms_policy.h"

#include <gtest/gtest.h>

namespace asynct::cuda {
namespace {

/// Every vector belongs to one block, which holds what it has, whatever the sizes.
TEST(RmsGrid, covers_everything) {
  for (const std::int64_t vectors : {1, 2, 263, 264, 1000, 70000})
    for (const std::int32_t dims : {4, 8, 64, 128, 1000, 4096, 5000, kMostRmsDims}) {
      const RmsGrid grid = rms_grid(vectors, dims);
      EXPECT_GE(grid.vectors, 1);
      EXPECT_GE(grid.blocks * grid.vectors, vectors);
      EXPECT_LT((grid.blocks - 1) * grid.vectors, vectors);
      EXPECT_LE(grid.shared_bytes, 227 * 1024);
      EXPECT_GE(grid.shared_bytes, grid.vectors * dims * 4);
      EXPECT_TRUE(grid.vectors == 1 || grid.vectors * dims <= kRmsElements);
    }
}

/// Few vectors are spread over the multiprocessors.
TEST(RmsGrid, leaves_no_multiprocessor_idle_for_few) {
  EXPECT_EQ(rms_grid(200, 64).blocks, 200);
  EXPECT_GE(rms_grid(2000, 64).blocks, kRmsFewBlocks);
  EXPECT_EQ(rms_grid(1 << 20, 1024).vectors, 2);
}

}  // namespace
}  // namespace asynct::cuda
