#include "asynct/ops/attention/cuda/path.h"

#include <gtest/gtest.h>

#include "asynct/base/error.h"

namespace asynct::cuda {
namespace {

std::string choice(const AttentionCase& wanted) { return describe(choose_path(wanted)); }

TEST(AttentionPath, is_the_fastest_that_takes_a_case) {
  AttentionCase wanted = {.head_dim = 128, .group = 2};
  EXPECT_EQ(choice(wanted), "decode for sm_90a");
  wanted.tokens = 8;
  EXPECT_EQ(choice(wanted), "decode for sm_90a");
  wanted.tokens = 9;
  EXPECT_EQ(choice(wanted), "prefill for sm_90a");
  wanted.dtype = DType::f16;
  EXPECT_EQ(choice(wanted), "prefill for sm_90a");
  EXPECT_EQ(choice({.dtype = DType::f16, .head_dim = 64, .group = 7, .block_size = 8}), "decode for sm_90a");
}

TEST(AttentionPath, says_what_the_faster_ones_do_not_take) {
  const AttentionCase decode = {.head_dim = 128, .group = 2};
  const AttentionCase prefill = {.head_dim = 128, .group = 2, .tokens = 100};
  for (const AttentionCase& both : {decode, prefill}) {
    AttentionCase wanted = both;
    wanted.block_size = 24;
    EXPECT_EQ(choice(wanted), "plain: blocks of 24 tokens");
    wanted.block_size = 1;
    EXPECT_EQ(choice(wanted), "plain: blocks of 1 tokens");
    wanted.block_size = 0;
    EXPECT_EQ(choice(wanted), "plain: keys and values without blocks");
    wanted.head_dim = 256;
    EXPECT_EQ(choice(wanted), "plain: head_dim 256");
    for (const std::int32_t capability : {80, 86, 89, 100, 120}) {
      wanted.compute_capability = capability;
      EXPECT_EQ(choose_path(wanted).path, AttentionPath::plain);
    }
    EXPECT_EQ(choice(wanted), "plain: compute capability 12.0");
  }
  AttentionCase wanted = prefill;
  wanted.block_size = 8;
  EXPECT_EQ(choice(wanted), "plain: blocks of 8 tokens");
  wanted = prefill;
  wanted.group = 6;
  EXPECT_EQ(choice(wanted), "plain: prefill with 6 query heads a KV head");
}

TEST(AttentionPath, is_an_error_when_none_takes_a_case) {
  EXPECT_THROW(choose_path({.head_dim = 96}), Error);
  EXPECT_THROW(choose_path({.head_dim = 128, .pool_size = 4}), Error);
  EXPECT_THROW(choose_path({.head_dim = 128, .group = 17}), Error);
  EXPECT_THROW(choose_path({.head_dim = 128, .block_size = -1}), Error);
  EXPECT_THROW(choose_path({.head_dim = 128, .compute_capability = 75}), Error);
  EXPECT_THROW(choose_path({.dtype = DType::f32, .head_dim = 128}), Error);
}

}  // namespace
}  // namespace asynct::cuda
