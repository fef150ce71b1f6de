#include "asynct/python/attention_tensors.h"

#include "asynct/python/attention_testing.h"

namespace asynct::extension {
namespace {

TEST(AttentionTensors, of_a_layer_are_checked_before_anything_is_launched) {
  AttentionStep step = make_step(AttentionKernels::decode);
  build(step, {{0, 1, 2, 3}, {16, 17, 18}, 2, {1, -1, 2, 3, 4, 9}});
  Tensors tensors;
  const auto refuse = [&](const auto& change, const std::string& words) {
    LayerTensors layer = tensors.layer();
    change(layer);
    expect_error([&] { step.run({}, layer, false, nullptr); }, words);
  };
  refuse([](auto& t) { t.query.dtype = DType::f32; }, "query: dtype fp32, expected bf16 or fp16");
  refuse([](auto& t) { t.query.on_cuda = false; }, "query: on the CPU");
  refuse([](auto& t) { t.value.device = 1; }, "value cache: on cuda:1, expected on cuda:0");
  refuse([](auto& t) { t.key.dtype = DType::f16; }, "key cache: dtype fp16, expected bf16");
  refuse([](auto& t) { t.query.shape[1] = 4; }, "query: shape [3, 4, 128], expected [any, 8, 128]");
  refuse([](auto& t) { t.key.shape[1] = 32; },
         "key cache: shape [10, 32, 2, 128], expected [any, 16, 2, 128]");
  refuse([](auto& t) { t.value.shape[0] = 9; },
         "value cache: shape [9, 16, 2, 128], expected [10, 16, 2, 128]");
  refuse([](auto& t) { t.query.shape[0] = t.out.shape[0] = 2; }, "query: 2 rows, expected at least 3");
  refuse([](auto& t) { t.out.shape[0] = 2; }, "out: shape [2, 8, 128], expected [3, 8, 128]");
  refuse([](auto& t) { t.out.stride[1] = 256; }, "out: heads of a row are 256 apart, expected 128");
  refuse([](auto& t) { t.query.stride[0] = 1028; }, "query: stride 1028 of dimension 0");
  refuse([](auto& t) { t.key.shape[0] = t.value.shape[0] = 9; }, "block 9, expected less than the 9");
  refuse([](auto& t) { t.factors.shape[0] = 4; }, "factors: shape [4, 4], expected [8, 4]");
}

TEST(AttentionTensors, a_captured_step_needs_all_its_rows) {
  AttentionStep step = make_step(AttentionKernels::decode);
  step.fix({.sequences = 4, .tokens = 4, .context = 100});
  build(step, {{0, 1, 2, 3}, {16, 17, 18}});
  Tensors tensors;
  expect_error([&] { step.run({}, tensors.layer(), false, nullptr); },
               "query: 3 rows, expected at least 4, the most that a captured step may have");
}

TEST(AttentionTensors, keys_in_one_piece_have_three_dimensions) {
  AttentionStep step = make_step(AttentionKernels::prefill, with_blocks(kShape, 0));
  build(step, {{0, 1, 3}, {20, 40}, 0, {}, {0, 20}});
  Tensors tensors;
  const auto refuse = [&](const auto& change, const std::string& words) {
    LayerTensors layer = tensors.ragged_layer();
    change(layer);
    expect_error([&] { check_layer(layer, step.room(), 60); }, words);
  };
  LayerTensors fits = tensors.ragged_layer();
  check_layer(fits, step.room(), 60);
  refuse([&](auto& t) { t.key = tensors.layer().key; },
         "keys: shape [10, 16, 2, 128], expected [any, 2, 128]");
  refuse([](auto& t) { t.value.shape[0] = 59; }, "values: shape [59, 2, 128], expected [60, 2, 128]");
  refuse([](auto& t) { t.key.shape[0] = t.value.shape[0] = 59; }, "keys: 59 rows, expected at least 60");
  refuse([](auto& t) { t.key.stride[1] = 132; }, "keys: stride 132 of dimension 1");
}

TEST(AttentionTensors, of_a_step_are_checked) {
  AttentionStep step =
      make_step(AttentionKernels::both, kShape, kHopper, SkipValues::by_density);  // with all there is
  build(step, {{0, 1, 70}, {20, 17000}, 1100});
  Tensors tensors;
  const auto make = [&] {
    StepMemory memory = tensors.memory_of(step.room());
    memory.places = tensors.of(DType::i32, {2, 1100});
    memory.value_count = tensors.of(DType::i64, {1});
    return memory;
  };
  check_memory(make(), step.room(), true, 0);
  const auto refuse = [&](const auto& change, const std::string& words) {
    StepMemory memory = make();
    change(memory);
    expect_error([&] { check_memory(memory, step.room(), true, 0); }, words);
  };
  refuse([](auto& m) { m.units.shape[0] -= 1; }, "units: ");
  refuse([](auto& m) { m.partial.dtype = DType::i32; }, "partial sums: dtype int32, expected fp32");
  refuse([](auto& m) { m.arrived.shape[0] -= 1; }, "arrival counters: ");
  refuse([](auto& m) { m.span_sums.shape[0] -= 1; }, "span sums: ");
  refuse([](auto& m) { m.value_count = {}; }, "value counter: dtype");
  refuse([](auto& m) { m.places.device = 1; }, "block_table: on cuda:1, expected on cuda:0");
  refuse([](auto& m) { m.places.shape[0] = 1; }, "block_table: 1 rows, expected at least 2");
  refuse([](auto& m) { m.places.shape[1] = 1062; }, "expected enough for 17000 tokens");
  refuse([](auto& m) { m.places.stride[1] = 2; }, "blocks of a row are 2 apart");

  AttentionStep ragged = make_step(AttentionKernels::prefill, with_blocks(kShape, 0));
  build(ragged, {{0, 1, 3}, {20, 40}, 0, {}, {0, 20}});
  StepMemory memory = tensors.memory_of(ragged.room());
  check_memory(memory, ragged.room(), false, 0);
  memory.places = tensors.of(DType::i64, {1});
  expect_error([&] { check_memory(memory, ragged.room(), false, 0); },
               "first_key: 1 elements, expected at least 2");
}

}  // namespace
}  // namespace asynct::extension
