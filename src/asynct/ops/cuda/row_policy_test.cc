#include "asynct/ops/cuda/row_policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "asynct/ops/cuda/divider.h"

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

TEST(Divider, gives_quotients_and_remainders) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t by : {1, 2, 3, 7, 8, 16, 24, 127, 128, 641, 65536, 1000003, kMost - 1, kMost}) {
    const Divider divider(by);
    for (const std::int32_t n :
         {0, 1, 2, 5, 127, 128, 129, 640, 641, 65535, 65536, 999999937, kMost - 1, kMost})
      for (const std::int32_t near : {n, n / by * by, n / by * by - 1}) {
        if (near < 0) continue;
        EXPECT_EQ(divider.quotient(near), near / by) << near << " by " << by;
        EXPECT_EQ(divider.remainder(near), near % by) << near << " by " << by;
      }
  }
}

}  // namespace
}  // namespace asynct::cuda
