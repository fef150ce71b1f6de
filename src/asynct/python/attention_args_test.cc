#include "asynct/python/attention_args.h"

#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/python/attention_testing.h"

// Arguments for decode and prefill need a driver, which describes their caches: tests/python_gpu.
namespace asynct::extension {
namespace {

/// What plain_few.cuh and plain_many.cuh do with a unit: whether it brings keys, and whether few rows leave a
/// partial sum or count.
bool brings_keys(const cuda::DecodeUnit& unit, int pool_size, int stage_keys) {
  const int first = unit.chunk * cuda::kChunkKeys;
  const bool halo = first > 0 && pool_size > 1;
  return (halo ? first - stage_keys : first) < std::min(unit.context, first + cuda::kChunkKeys);
}
bool looks_up(int key, int first_key, int last_key) { return key >= first_key && key < last_key; }

TEST(AttentionArgs, empty_units_of_the_plain_path_touch_nothing) {
  const cuda::DecodeUnit few = empty_few_unit(true);
  EXPECT_EQ(few.tokens, 0);
  EXPECT_EQ(cuda::chunks_of(few.context), 1);  // neither a partial sum nor a count
  for (const int pool : {1, 2, 3, 5})
    for (const int stage : {32, 64}) {
      EXPECT_FALSE(brings_keys(few, pool, stage));
      const int first = few.chunk * cuda::kChunkKeys;
      for (const int begin : {first - stage, first})  // the first two stages are looked up ahead
        for (int key = begin; key < begin + 2 * stage; ++key) {
          EXPECT_FALSE(looks_up(key, first - (pool - 1), few.context));  // keys
          EXPECT_FALSE(looks_up(key, first, few.context));               // values
        }
    }
  const cuda::PrefillUnit many = empty_many_unit(true);
  EXPECT_EQ(many.tokens, 0);
  EXPECT_EQ(many.last_key, 0);
}

TEST(AttentionArgs, empty_units_of_the_kernels_for_hopper_have_no_rows) {
  EXPECT_EQ(empty_few_unit(false).tokens, 0);
  EXPECT_EQ(cuda::chunks_of(empty_few_unit(false).context), 0);
  EXPECT_EQ(empty_many_unit(false).tokens, 0);
  EXPECT_EQ(empty_many_unit(false).last_key, 1);  // the kernel waits for a tile
}

TEST(AttentionArgs, of_the_plain_path_over_blocks) {
  const AttentionShape shape = with_blocks(kShape, 24);
  AttentionStep step = make_step(AttentionKernels::both, shape);
  build(step, {{0, 1, 70}, {30, 80}, 4});
  Tensors tensors;
  LayerTensors layer = tensors.layer();
  layer.key = tensors.of(DType::bf16, {7, 24, 2, 128});
  layer.value = tensors.of(DType::bf16, {7, 2, 24, 128});
  std::swap(layer.value.shape[1], layer.value.shape[2]);
  std::swap(layer.value.stride[1], layer.value.stride[2]);
  StepMemory memory = tensors.memory_of(step.room());
  memory.places = tensors.of(DType::i32, {2, 5});
  const cuda::PlainArgs args = plain_args(step.room(), memory, layer);
  EXPECT_EQ(args.few_count, 2);
  EXPECT_EQ(args.many_count, 2 * 5);  // 16 tokens a unit
  EXPECT_EQ(static_cast<const void*>(args.many), static_cast<const void*>(args.few + args.few_count));
  EXPECT_EQ(args.slots, 2);
  EXPECT_EQ(args.max_blocks, 5);
  EXPECT_EQ(args.block_size, 24);
  EXPECT_EQ(args.group, 4);
  EXPECT_NE(args.block_table, nullptr);
  EXPECT_EQ(args.first_key, nullptr);
  EXPECT_EQ(args.key.block_stride, 24 * 2 * 128);
  EXPECT_EQ(args.key.token_stride, 2 * 128);
  EXPECT_EQ(args.key.head_stride, 128);
  EXPECT_EQ(args.value.token_stride, 128);
  EXPECT_EQ(args.value.head_stride, 24 * 128);
}

TEST(AttentionArgs, of_the_plain_path_over_keys_in_one_piece) {
  AttentionStep step = make_step(AttentionKernels::prefill, with_blocks(kShape, 0));
  build(step, {{0, 1, 40}, {20, 40}, 0, {}, {0, 20}});
  Tensors tensors;
  const cuda::PlainArgs args =
      plain_args(step.room(), tensors.memory_of(step.room()), tensors.ragged_layer());
  EXPECT_EQ(args.block_table, nullptr);
  EXPECT_NE(args.first_key, nullptr);
  EXPECT_EQ(args.key.token_stride, 2 * 128);
  EXPECT_EQ(args.key.head_stride, 128);
  EXPECT_EQ(args.few_count, 2);
  EXPECT_EQ(args.many_count, 2 * 3);
}

/// Decode for sm_90a takes 3 heads a KV head, prefill does not: the plain path gets the rows of many alone.
TEST(AttentionArgs, of_the_plain_path_beside_decode) {
  AttentionStep step = make_step(AttentionKernels::both, with_group(kShape, 3));
  build(step, {{0, 1, 70}, {30, 80}, 5});
  Tensors tensors;
  const cuda::PlainArgs args = plain_args(step.room(), tensors.memory_of(step.room()), tensors.layer());
  EXPECT_EQ(step.room().few_units, 2);
  EXPECT_EQ(args.few_count, 0);
  EXPECT_EQ(args.many_count, 2 * 4);  // 21 tokens a unit
  EXPECT_EQ(static_cast<const void*>(args.many), static_cast<const void*>(args.few + 2));
}

}  // namespace
}  // namespace asynct::extension
