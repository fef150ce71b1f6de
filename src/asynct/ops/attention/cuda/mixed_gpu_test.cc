// Decode and prefill in one launch against the two kernels alone: equal bits, whatever the split of the
// blocks.

#include "asynct/ops/attention/cuda/mixed.h"

#include "asynct/ops/attention/cuda/gpu_test_case.h"

namespace asynct::cuda {
namespace {

/// What run_mixed() takes.
Setting mixed_setting(Random& random) {
  Setting setting = random_setting(random);
  const int group = pick_of<int>(random, {1, 2, 4, 8});
  setting.config.heads = group * setting.config.kv_heads;
  setting.config.scale = 1 / static_cast<float>(setting.config.head_dim);
  setting.params = {};
  std::uniform_real_distribution<float> around(-0.2F, 1.2F);
  for (int h = 0; h < setting.config.heads; ++h) setting.params.sigma.push_back(around(random));
  setting.dtype = DType::bf16;
  setting.block_size = pick_of<std::int32_t>(random, {16, 32, 64});
  return setting;
}

TEST(MixedBits, are_those_of_two_launches) {
  Random random(11);
  for (int round = 0; round < 8; ++round) {
    const Setting setting = mixed_setting(random);
    std::vector<TestSequence> decoding, prefilling;
    for (int i = 0; i < 20; ++i)
      decoding.push_back(sequence_of(random, setting, std::min(random_context(random), 2300), 1));
    for (int i = 0; i < 3; ++i) {
      const std::int32_t context = std::min(random_context(random), 1100);
      prefilling.push_back(sequence_of(random, setting, context, pick(random, 1, context)));
    }
    const std::vector<std::uint16_t> decoded = decode(setting, decoding);
    const std::vector<std::uint16_t> prefilled = prefill(setting, prefilling);
    for (const std::int32_t blocks : {1, 40, 131}) {
      const DecodeLaunch first(setting, decoding);
      const PrefillLaunch second(setting, prefilling);
      run_mixed(first.args, second.args, blocks, setting.dtype, setting.config.head_dim,
                setting.config.pool_size, nullptr);
      EXPECT_EQ(first.out.download(), decoded) << "round " << round << ", blocks " << blocks;
      EXPECT_EQ(second.out.download(), prefilled) << "round " << round << ", blocks " << blocks;
    }
  }
}

TEST(MixedErrors, name_what_is_not_there) {
  PrefillArgs plain;
  plain.form.plain = true;
  EXPECT_THROW(run_mixed({}, {}, 40, DType::bf16, 128, 3, nullptr), Error);
  EXPECT_THROW(run_mixed({}, plain, 40, DType::f16, 128, 3, nullptr), Error);
  EXPECT_THROW(run_mixed({}, plain, 40, DType::bf16, 96, 3, nullptr), Error);
  DecodeArgs many;
  many.most_rows = 9;
  EXPECT_THROW(run_mixed(many, plain, 40, DType::bf16, 128, 3, nullptr), Error);
}

}  // namespace
}  // namespace asynct::cuda
