#include "asynct/python/attention_step.h"

#include <gtest/gtest.h>

#include <limits>

#include "asynct/ops/attention/cuda/policy.h"

// Plans and checks; launches are tested through Python (tests/python_gpu).
namespace asynct::python {
namespace {

constexpr AttentionShape kShape = {.heads = 8, .kv_heads = 2, .head_dim = 128, .block_size = 16};

struct Lengths {
  std::vector<std::int32_t> query_start, context;
  std::int32_t width = 512;
  std::vector<std::int32_t> table = {};
};

void build(AttentionStep& step, const Lengths& lengths) {
  step.build({lengths.query_start, lengths.context, lengths.width, lengths.table});
}

template <class Call>
void expect_error(const Call& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "expected an error: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

void expect_refused(AttentionKernels kernels, const Lengths& lengths, const std::string& words) {
  AttentionStep step(kShape, kernels, false);
  expect_error([&] { build(step, lengths); }, words);
}

template <class Unit>
std::vector<Unit> units_of(const AttentionStep& step, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> words(static_cast<std::size_t>(8 * step.unit_rows()), -1);
  step.write_units(words);
  const auto* units = reinterpret_cast<const Unit*>(words.data()) + first;
  return {units, units + count};
}

TEST(AttentionStep, shapes_are_checked) {
  const auto refuse = [](const AttentionShape& shape, const std::string& words) {
    expect_error([&] { AttentionStep(shape, AttentionKernels::decode, false); }, words);
  };
  refuse({7, 2, 128, 16}, "7 query heads and 2 KV heads");
  refuse({8, 0, 128, 16}, "0 KV heads");
  refuse({8, 2, 96, 16}, "head_dim 96, expected 64 or 128");
  refuse({8, 2, 128, 24}, "pages of 24 tokens");
  refuse({34, 2, 128, 16}, "17 query heads a KV head, expected at most 16");
}

TEST(AttentionStep, lengths_are_checked) {
  const auto refuse = [](const Lengths& lengths, const std::string& words) {
    expect_refused(AttentionKernels::both, lengths, words);
  };
  refuse({{0, 1}, {5, 6}}, "2 entries for 2 sequences");
  refuse({{1, 2}, {5}}, "begins with 1");
  refuse({{0, 2, 1}, {5, 6}}, "falls from 2 to 1");
  refuse({{0, 3}, {2}}, "context_length: 2 of sequence 0, expected 3");
  refuse({{0, 1}, {33}, 2}, "33 of sequence 0, expected 1, its query rows, to 32");
  refuse({{0, 1}, {17}, 2, {4, -1}}, "block_table: -1 at [0, 1]");
  refuse({{0, 1}, {17}, 2, {4}}, "block_table: 1 entries");
  expect_refused(AttentionKernels::decode, {{0, 1, 6}, {9, 9}},
                 "5 query rows of sequence 1, expected at most 4");
}

TEST(AttentionStep, a_failed_plan_leaves_the_one_before) {
  AttentionStep step(kShape, AttentionKernels::both, false);
  build(step, {{0, 1, 41}, {2000, 40}});
  const std::int64_t rows = step.unit_rows();
  expect_error([&] { build(step, {{0, 1}, {17}, 2, {4, -1}}); }, "-1");
  EXPECT_EQ(step.unit_rows(), rows);
  EXPECT_EQ(step.tokens(), 41);
}

TEST(AttentionStep, sequences_of_few_rows_at_the_front_decode) {
  AttentionStep step(kShape, AttentionKernels::both, false);
  build(step, {{0, 1, 1, 5, 105, 106}, {1500, 0, 40, 100, 7}});
  EXPECT_EQ(step.decode_units(), 2 * (2 + 1));
  EXPECT_EQ(step.prefill_units(), 2 * (4 + 1));  // 32 tokens a unit; what comes later prefills, however short
  for (const auto& unit : units_of<cuda::PrefillUnit>(step, step.decode_units(), step.prefill_units())) {
    EXPECT_EQ(unit.sequence, unit.first_row == 5 ? 3 : 4);
    EXPECT_EQ(unit.first_row + unit.tokens, unit.sequence == 3 ? 105 : 106);
  }
}

TEST(AttentionStep, fixed_launches_have_empty_units) {
  AttentionStep step(kShape, AttentionKernels::both, false);
  step.fix({.sequences = 4, .tokens = 70, .sequence_tokens = 1, .context = 3000});
  const std::int64_t decode_room = 4 * 2 * 3;
  const std::int64_t prefill_room = 2 * (70 / 32 + 4);
  for (const Lengths& lengths : {Lengths{{0, 1, 3}, {1500, 40}}, Lengths{{0, 66, 70}, {2999, 9}},
                                 Lengths{{0, 1, 2, 3, 4}, {3000, 3000, 3000, 3000}}, Lengths{{0}, {}}}) {
    build(step, lengths);
    ASSERT_EQ(step.unit_rows(), decode_room + prefill_room);
    EXPECT_EQ(step.arrived_words(), 2 * decode_room + 2);
    EXPECT_EQ(step.partial_floats(), decode_room * cuda::kDecodeRows * 128);
    const auto decode = units_of<cuda::DecodeUnit>(step, 0, decode_room);
    for (std::size_t i = 0; i < decode.size(); ++i)
      EXPECT_EQ(decode[i].context > 0, static_cast<std::int32_t>(i) < step.decode_units());
    const auto prefill = units_of<cuda::PrefillUnit>(step, decode_room, prefill_room);
    for (std::size_t i = 0; i < prefill.size(); ++i) {
      EXPECT_EQ(prefill[i].tokens > 0, static_cast<std::int32_t>(i) < step.prefill_units());
      EXPECT_GT(prefill[i].last_key, 0);  // the kernel waits for a tile
    }
  }
  expect_error([&] { build(step, {{0, 1}, {3001}}); }, "3001 of sequence 0, expected at most 3000");
  expect_error([&] { build(step, {{0, 71}, {71}}); }, "71 query rows, expected at most 70");
  expect_error(
      [&] {
        build(step, {{0, 1, 2, 3, 4, 5}, {9, 9, 9, 9, 9}});
      },
      "5 sequences, expected at most 4");
}

TEST(AttentionStep, limits_are_checked) {
  AttentionStep step(kShape, AttentionKernels::decode, false);
  expect_error([&] { step.fix({4, 3, 1, 100}); }, "4 sequences, 3 query rows");
  expect_error([&] { step.fix({4, 20, 5, 100}); }, "5 rows of a decoding sequence, expected 1 to 4");
  expect_error([&] { step.fix({1 << 20, 1 << 20, 1, 1 << 20}); }, "pieces of work");
  // What 32 bits do not hold.
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  expect_error([&] { step.fix({1, 1, 1, kMost}); }, "tokens of context, expected at most");
  expect_error([&] { step.fix({1, 1, 1 << 30, 100}); }, "rows of a decoding sequence, expected 1 to 4");
  AttentionStep prefill(kShape, AttentionKernels::prefill, false);
  expect_error([&] { prefill.fix({kMost, kMost, 1, 100}); }, "pieces of work");
}

TEST(AttentionStep, pages_are_those_that_the_kernels_take) {
  AttentionShape shape = kShape;
  shape.block_size = 4;
  expect_error([&] { AttentionStep(shape, AttentionKernels::decode, false); }, "a power of two from 8");
  shape.block_size = 8;
  AttentionStep(shape, AttentionKernels::decode, false);
  expect_error([&] { AttentionStep(shape, AttentionKernels::prefill, false); }, "a power of two from 16");
}

TEST(AttentionStep, span_sums_are_for_contexts_of_several_spans) {
  AttentionStep step(kShape, AttentionKernels::both, false);
  build(step, {{0, 100}, {8192}});
  EXPECT_EQ(step.span_sum_floats(132), 0);
  build(step, {{0, 100}, {16385}, 2048});
  EXPECT_EQ(step.span_sum_floats(132), 132 * cuda::kPrefillRows * 128);
}

/// Tensors that fit a step, at addresses that nobody reads.
struct Tensors {
  alignas(16) char memory[16];
  TensorRef of(DType dtype, std::vector<std::int64_t> shape) {
    std::vector<std::int64_t> stride(shape.size(), 1);
    for (std::size_t i = shape.size() - 1; i > 0; --i) stride[i - 1] = stride[i] * shape[i];
    return {.data = memory, .dtype = dtype, .on_cuda = true, .shape = shape, .stride = stride};
  }
  LayerTensors layer() {
    return {.query = of(DType::bf16, {3, 8, 128}),
            .key = of(DType::bf16, {10, 16, 2, 128}),
            .value = of(DType::bf16, {10, 16, 2, 128}),
            .factors = of(DType::f32, {8, 4}),
            .out = of(DType::bf16, {3, 8, 128}),
            .form = {}};
  }
};

TEST(AttentionStep, tensors_are_checked_before_anything_is_launched) {
  AttentionStep step(kShape, AttentionKernels::decode, false);
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

TEST(AttentionStep, a_captured_step_needs_all_its_rows) {
  AttentionStep step(kShape, AttentionKernels::decode, false);
  step.fix({.sequences = 4, .tokens = 4, .context = 100});
  build(step, {{0, 1, 2, 3}, {16, 17, 18}});
  Tensors tensors;
  expect_error([&] { step.run({}, tensors.layer(), false, nullptr); },
               "query: 3 rows, expected at least 4, the most that a captured step may have");
}

}  // namespace
}  // namespace asynct::python
