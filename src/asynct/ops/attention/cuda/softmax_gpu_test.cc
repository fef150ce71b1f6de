// The softmax twin against the double reference, and by itself bit by bit.

#include "asynct/ops/attention/cuda/gpu_test_case.h"

namespace asynct::cuda {
namespace {

Setting softmax_setting(Random& random) {
  Setting setting = random_setting(random);
  const int group = pick_of<int>(random, {1, 2, 4, 8, 16});
  setting.config.kind = AttentionKind::softmax;
  setting.config.heads = group * setting.config.kv_heads;
  // From nearly equal weights to nearly one key alone.
  setting.config.scale = pick_of<float>(random, {0.01F, 0.1F, 1.F});
  setting.params = {};
  setting.dtype = DType::bf16;
  setting.block_size = pick_of<std::int32_t>(random, {16, 32, 64, 128});
  return setting;
}

class SoftmaxPrefill : public ::testing::TestWithParam<int> {};

TEST_P(SoftmaxPrefill, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const Setting setting = softmax_setting(random);
  std::vector<TestSequence> sequences;
  for (int i = pick(random, 1, 3); i > 0; --i) {
    const std::int32_t context = std::min(random_context(random), 1100);
    sequences.push_back(sequence_of(random, setting, context, pick(random, 1, context)));
  }
  expect_close(setting, sequences, prefill(setting, sequences));
}

INSTANTIATE_TEST_SUITE_P(Random, SoftmaxPrefill, ::testing::Range(0, 24));

TEST(SoftmaxPrefillBits, do_not_depend_on_the_batch) {
  Random random(3);
  const Setting setting = softmax_setting(random);
  const TestSequence whole = sequence_of(random, setting, 500, 500);
  const std::vector<std::uint16_t> alone = prefill(setting, {whole});
  const std::vector<std::uint16_t> together =
      prefill(setting, {whole, sequence_of(random, setting, 300, 40), sequence_of(random, setting, 77, 77)});
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin()));
}

TEST(SoftmaxPrefillErrors, name_what_is_not_there) {
  PrefillArgs args;
  args.unit_count = 1;
  EXPECT_THROW(run_softmax_prefill(args, DType::f16, 128, nullptr), Error);
  EXPECT_THROW(run_softmax_prefill(args, DType::bf16, 96, nullptr), Error);
  EXPECT_THROW(run_softmax_prefill(args, DType::bf16, 64, nullptr), Error);  // no counters
}

}  // namespace
}  // namespace asynct::cuda
