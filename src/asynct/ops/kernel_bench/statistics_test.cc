#include "asynct/ops/kernel_bench/statistics.h"

#include <gtest/gtest.h>

namespace asynct::kernel_bench {
namespace {

TEST(Statistics, of_nothing_and_of_one) {
  EXPECT_EQ(summarize({}).count, 0);
  EXPECT_EQ(summarize({}).median, 0);
  const Summary one = summarize({3});
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.median, 3);
  EXPECT_EQ(one.p10, 3);
  EXPECT_EQ(one.p90, 3);
}

TEST(Statistics, do_not_depend_on_order_and_interpolate) {
  const Summary odd = summarize({50, 10, 40, 20, 30});
  EXPECT_DOUBLE_EQ(odd.median, 30);
  EXPECT_DOUBLE_EQ(odd.p10, 14);  // 4 tenths of the way from the first to the second
  EXPECT_DOUBLE_EQ(odd.p90, 46);
  EXPECT_DOUBLE_EQ(summarize({4, 1, 2, 3}).median, 2.5);
}

TEST(Statistics, an_outlier_moves_the_spread_only) {
  std::vector<double> values(21, 5);
  values[7] = 1000;
  EXPECT_EQ(summarize(values).median, 5);
  EXPECT_EQ(summarize(values).p90, 5);
}

}  // namespace
}  // namespace asynct::kernel_bench
