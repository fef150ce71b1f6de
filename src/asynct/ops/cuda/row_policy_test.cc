#include "asynct/ops/cuda/row_policy.h"

#include <gtest/gtest.h>

namespace asynct::cuda {
namespace {

/// Every row and column belongs to one thread, whatever the sizes.
TEST(RowGrid, covers_everything) {
  for (const std::int64_t rows : {1, 2, 31, 500, 70000})
    for (const std::int32_t columns : {1, 3, 100, 128, 129, 384, 5000})
      for (const std::int32_t most : {1, 2, 4}) {
        const RowGrid grid = row_grid(rows, columns, most);
        EXPECT_LE(grid.width * grid.height, kRowThreads);
        EXPECT_GE(grid.width * grid.strips, columns);
        EXPECT_LT(grid.width * (grid.strips - 1), columns);
        EXPECT_GE(grid.blocks * grid.height * grid.rows, rows);
        EXPECT_LT((grid.blocks - 1) * grid.height * grid.rows, rows);
        EXPECT_TRUE(grid.rows == 1 || grid.rows == most);
      }
}

}  // namespace
}  // namespace asynct::cuda
