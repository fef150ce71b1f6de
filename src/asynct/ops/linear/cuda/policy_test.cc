#include "asynct/ops/linear/cuda/policy.h"

#include <gtest/gtest.h>

namespace asynct::cuda {
namespace {

TEST(LinearPolicy, splits_the_source_models_layers_and_not_its_head) {
  EXPECT_EQ(linear_parts(2048, 1024), 4);
  EXPECT_EQ(linear_parts(1024, 1024), 4);
  EXPECT_EQ(linear_parts(6144, 1024), 4);
  EXPECT_EQ(linear_parts(1024, 3072), 8);
  EXPECT_EQ(linear_parts(151936, 1024), 1);
}

TEST(LinearPolicy, parts_are_whole_stages) {
  for (std::int32_t outputs = 8; outputs < 40000; outputs = outputs * 3 / 2 / 8 * 8 + 8)
    for (std::int32_t inputs = 64; inputs < 20000; inputs += 64) {
      const std::int32_t parts = linear_parts(outputs, inputs);
      ASSERT_GE(parts, 1);
      ASSERT_LE(parts, kMostParts);
      ASSERT_TRUE(parts == 1 || inputs % (parts * kStreamDepth) == 0) << outputs << " x " << inputs;
    }
}

TEST(LinearPolicy, tokens_hold_the_rows) {
  EXPECT_EQ(stream_tokens(1), 8);
  EXPECT_EQ(stream_tokens(8), 8);
  EXPECT_EQ(stream_tokens(9), 16);
  EXPECT_EQ(stream_tokens(64), 64);
  EXPECT_EQ(stream_tokens(33), 64);
  EXPECT_EQ(stream_tokens(300), 64);
}

}  // namespace
}  // namespace asynct::cuda
