#include "asynct/python/attention_step.h"

#include <limits>

#include "asynct/ops/attention/cuda/plain_policy.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/python/attention_testing.h"

// Plans and checks; launches are tested through Python (tests/python_gpu).
namespace asynct::extension {
namespace {

void expect_refused(AttentionKernels kernels, const Lengths& lengths, const std::string& words) {
  AttentionStep step = make_step(kernels);
  expect_error([&] { build(step, lengths); }, words);
}

TEST(AttentionStep, shapes_are_checked) {
  const auto refuse = [](const AttentionShape& shape, const std::string& words) {
    expect_error([&] { make_step(AttentionKernels::decode, shape); }, words);
  };
  refuse({7, 2, 128, 16}, "7 query heads and 2 KV heads");
  refuse({8, 0, 128, 16}, "0 KV heads");
  refuse({8, 2, 96, 16}, "head_dim 96, expected 64, 128 or 256");
  refuse({8, 2, 128, -1}, "blocks of -1 tokens");
  refuse({34, 2, 128, 16}, "17 query heads a KV head, expected 1 to 16");
  try {
    make_step(AttentionKernels::decode, kShape, {.compute_capability = 75});
    ADD_FAILURE();
  } catch (const cuda::CudaError& error) {
    EXPECT_STREQ(error.what(), "attention: compute capability 7.5, expected 8.0 or more");
  }
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
  AttentionStep step = make_step(AttentionKernels::both);
  build(step, {{0, 1, 41}, {2000, 40}});
  const std::int64_t rows = step.room().unit_rows();
  expect_error([&] { build(step, {{0, 1}, {17}, 2, {4, -1}}); }, "-1");
  EXPECT_EQ(step.room().unit_rows(), rows);
  EXPECT_EQ(step.room().tokens, 41);
}

TEST(AttentionStep, sequences_of_few_rows_decode) {
  AttentionStep step = make_step(AttentionKernels::both);
  build(step, {{0, 1, 1, 5, 105, 106}, {1500, 0, 40, 100, 7}});
  EXPECT_EQ(step.few_units(), 2 * (2 + 1 + 1));
  EXPECT_EQ(step.many_units(), 2 * 4);  // 32 tokens a unit
  EXPECT_EQ(step.room().few_tokens, 4);
  for (const auto& unit : few_units_of(step)) {
    EXPECT_EQ(unit.first_row, unit.sequence == 0 ? 0 : unit.sequence == 2 ? 1 : 105);
    EXPECT_EQ(unit.tokens, unit.sequence == 2 ? 4 : 1);
  }
  for (const auto& unit : many_units_of(step)) {
    EXPECT_EQ(unit.sequence, 3);
    EXPECT_EQ(unit.first_row, 5);
    EXPECT_EQ(unit.tokens, 100);
  }
}

TEST(AttentionStep, prefill_takes_sequences_of_any_length) {
  AttentionStep step = make_step(AttentionKernels::prefill);
  build(step, {{0, 1, 101}, {1500, 100}});
  EXPECT_EQ(step.few_units(), 0);
  EXPECT_EQ(step.many_units(), 2 * (1 + 4));
  // Units of the plain path are parted by rows.
  AttentionStep plain = make_step(AttentionKernels::prefill, kShape, kAmpere);
  build(plain, {{0, 1, 101}, {1500, 100}});
  EXPECT_EQ(plain.few_units(), 2 * 2);
  EXPECT_EQ(plain.many_units(), 2 * 7);  // 16 tokens a unit
}

TEST(AttentionStep, fixed_launches_have_empty_units) {
  for (const AttentionDevice& device : {kHopper, kAmpere}) {
    const bool is_plain = device.compute_capability != 90;
    AttentionStep step = make_step(AttentionKernels::both, kShape, device);
    step.fix({.sequences = 4, .tokens = 70, .sequence_tokens = 1, .context = 3000});
    const std::int64_t few_room = 4 * 2 * 3;
    const std::int64_t many_room = 2 * (70 / (is_plain ? 16 : 32) + 4);
    for (const Lengths& lengths : {Lengths{{0, 1, 3}, {1500, 40}}, Lengths{{0, 66, 70}, {2999, 9}},
                                   Lengths{{0, 1, 2, 3, 4}, {3000, 3000, 3000, 3000}}, Lengths{{0}, {}}}) {
      build(step, lengths);
      ASSERT_EQ(step.room().few_units, few_room);
      ASSERT_EQ(step.room().many_units, many_room);
      EXPECT_EQ(step.room().arrived_words(), 2 * few_room + (is_plain ? 0 : 2));
      EXPECT_EQ(step.room().partial_floats(), few_room * cuda::kDecodeRows * 128);
      const auto few = few_units_of(step);
      for (std::size_t i = 0; i < few.size(); ++i) {
        EXPECT_EQ(few[i].tokens > 0, static_cast<std::int32_t>(i) < step.few_units());
        EXPECT_EQ(few[i].context == 0, few[i].tokens == 0 && !is_plain);
      }
      const auto many = many_units_of(step);
      for (std::size_t i = 0; i < many.size(); ++i) {
        EXPECT_EQ(many[i].tokens > 0, static_cast<std::int32_t>(i) < step.many_units());
        EXPECT_EQ(many[i].last_key == 0, many[i].tokens == 0 && is_plain);
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
}

/// However rows are parted, their units are within the room.
TEST(AttentionStep, room_is_enough_for_every_step) {
  for (const AttentionKernels kernels :
       {AttentionKernels::decode, AttentionKernels::prefill, AttentionKernels::both})
    for (const int group : {1, 3, 4, 16})
      for (const AttentionDevice& device : {kHopper, kAmpere})
        for (const std::int32_t most : {1, 16 / group}) {
          AttentionStep step = make_step(kernels, with_group(kShape, group), device);
          step.fix({.sequences = 3, .tokens = 48, .sequence_tokens = most, .context = 2100});
          for (std::int32_t rows = 0; rows < 16; ++rows) {
            if (kernels == AttentionKernels::decode && rows > most) continue;
            build(step, {{0, rows, 2 * rows, 3 * rows}, {2100, 1024 + rows, rows}});
            EXPECT_LE(step.few_units(), step.room().few_units);
            EXPECT_LE(step.many_units(), step.room().many_units);
          }
        }
}

TEST(AttentionStep, captured_prefill_has_units_of_many_rows_alone) {
  AttentionStep step = make_step(AttentionKernels::prefill, with_blocks(kShape, 24));
  step.fix({.sequences = 3, .tokens = 40, .context = 2000});
  build(step, {{0, 1, 31}, {1500, 40}});
  EXPECT_EQ(step.room().few_units, 0);
  EXPECT_EQ(step.room().partial_floats(), 0);
  EXPECT_EQ(step.many_units(), 2 * (1 + 2));
  EXPECT_EQ(step.room().many_units, 2 * (2 + 3));
}

TEST(AttentionStep, limits_are_checked) {
  AttentionStep step = make_step(AttentionKernels::decode);
  expect_error([&] { step.fix({4, 3, 1, 100}); }, "4 sequences, 3 query rows");
  expect_error([&] { step.fix({4, 20, 5, 100}); }, "5 rows of a decoding sequence, expected 1 to 4");
  expect_error([&] { step.fix({1 << 20, 1 << 20, 1, 1 << 20}); }, "pieces of work");
  // What 32 bits do not hold.
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  expect_error([&] { step.fix({1, 1, 1, kMost}); }, "tokens of context, expected at most");
  expect_error([&] { step.fix({1, 1, 1 << 30, 100}); }, "rows of a decoding sequence, expected 1 to 4");
  AttentionStep prefill = make_step(AttentionKernels::prefill);
  expect_error([&] { prefill.fix({kMost, kMost, 1, 100}); }, "pieces of work");
}

std::string path(const AttentionShape& shape, AttentionKernels kernels = AttentionKernels::both,
                 const AttentionDevice& device = kHopper) {
  AttentionStep step = make_step(kernels, shape, device);
  if (shape.block_size == 0)
    build(step, {{0, 1, 71}, {40, 80}, 0, {}, {0, 40}});
  else if (kernels == AttentionKernels::decode)
    build(step, {{0, 1}, {40}});
  else
    build(step, {{0, 1, 71}, {40, 80}});
  return step.path();
}

TEST(AttentionStep, the_fastest_kernels_that_take_a_part_are_its) {
  EXPECT_EQ(path(kShape), "decode for sm_90a, prefill for sm_90a");
  EXPECT_EQ(path(kShape, AttentionKernels::decode), "decode for sm_90a");
  EXPECT_EQ(path(kShape, AttentionKernels::prefill), "prefill for sm_90a");
  EXPECT_EQ(path(with_blocks(kShape, 8)), "decode for sm_90a, plain: blocks of 8 tokens");
  EXPECT_EQ(path(with_blocks(kShape, 8), AttentionKernels::decode), "decode for sm_90a");
  EXPECT_EQ(path(with_blocks(kShape, 24)), "plain: blocks of 24 tokens");
  EXPECT_EQ(path(with_blocks(kShape, 1), AttentionKernels::decode), "plain: blocks of 1 tokens");
  EXPECT_EQ(path(with_blocks(kShape, 0)), "plain: keys and values without blocks");
  EXPECT_EQ(path(with_group(kShape, 3)), "decode for sm_90a, plain: prefill with 3 query heads a KV head");
  EXPECT_EQ(path({8, 2, 256, 16}), "plain: head_dim 256");
  EXPECT_EQ(path(kShape, AttentionKernels::both, kAmpere), "plain: compute capability 8.0");
  AttentionStep none = make_step(AttentionKernels::both);
  build(none, {{0, 0}, {5}});
  EXPECT_EQ(none.path(), "none: no query rows");
}

TEST(AttentionStep, keys_in_one_piece_begin_somewhere) {
  AttentionStep step = make_step(AttentionKernels::prefill, with_blocks(kShape, 0));
  const auto refuse = [&](const Lengths& lengths, const std::string& words) {
    expect_error([&] { build(step, lengths); }, words);
  };
  refuse({{0, 1, 3}, {20, 40}, 0, {}, {0}}, "first_key: 1 entries for 2 sequences, expected one each");
  refuse({{0, 1, 3}, {20, 40}, 0, {}, {0, -1}}, "first_key: -1 of sequence 1");
  refuse({{0, 30}, {20}, 0, {}, {0}}, "context_length: 20 of sequence 0, expected 30, its query rows");
  refuse({{0, 1}, {std::numeric_limits<std::int32_t>::max()}, 0, {}, {0}}, "context_length: 2147483647");
  build(step, {{0, 1, 3}, {20, 40}, 0, {}, {0, 20}});
  EXPECT_EQ(step.few_units(), 2 * 2);
  AttentionStep paged = make_step(AttentionKernels::prefill);
  expect_error([&] { build(paged, {{0, 1}, {20}, 512, {}, {0}}); }, "with blocks, expected none");
}

TEST(AttentionStep, span_sums_are_for_contexts_of_several_spans) {
  AttentionStep step = make_step(AttentionKernels::both);
  build(step, {{0, 100}, {8192}});
  EXPECT_EQ(step.room().span_sum_floats(), 0);
  build(step, {{0, 100}, {16385}, 2048});
  EXPECT_EQ(step.room().span_sum_floats(), 132 * cuda::kPrefillRows * 128);
}

/// The plain path leaves a chunk's sum and a span's in each block of its launch.
TEST(AttentionStep, span_sums_of_the_plain_path_are_for_contexts_of_several_chunks) {
  AttentionStep step = make_step(AttentionKernels::both, kShape, kAmpere);
  build(step, {{0, 100}, {1024}});
  EXPECT_EQ(step.room().span_sum_floats(), 0);
  build(step, {{0, 1}, {5000}});  // few rows have slots
  EXPECT_EQ(step.room().span_sum_floats(), 0);
  build(step, {{0, 100}, {1025}});
  EXPECT_EQ(step.room().span_sum_floats(), 2 * 14 * cuda::kPlainRows * 128);  // a block a unit
  build(step, {{0, 4000}, {4000}});
  EXPECT_EQ(step.room().span_sum_floats(), 2 * 108 * cuda::plain_many_blocks(128) * cuda::kPlainRows * 128);
}

/// 128 units: as many as skipping is worth.
const Lengths& many_sequences() {
  static const Lengths lengths = [] {
    Lengths made = {{0}, {}};
    for (std::int32_t i = 1; i <= 64; ++i) {
      made.query_start.push_back(i);
      made.context.push_back(300);
    }
    return made;
  }();
  return lengths;
}

std::uint64_t counted(std::uint64_t seen, std::uint64_t needed) { return seen << 32 | needed; }

TEST(AttentionStep, skips_values_as_it_is_told) {
  AttentionStep step = make_step(AttentionKernels::decode, kShape, kHopper, SkipValues::yes);
  build(step, {{0, 1}, {20}});
  EXPECT_TRUE(step.skips_values());
  EXPECT_FALSE(step.counts_values());
  step = make_step(AttentionKernels::decode);
  build(step, {{0, 1}, {20}});
  EXPECT_FALSE(step.skips_values());
  step = make_step(AttentionKernels::decode, kShape, kAmpere, SkipValues::yes);
  build(step, {{0, 1}, {20}});
  EXPECT_FALSE(step.skips_values());  // the plain path cannot
  step = make_step(AttentionKernels::prefill, kShape, kHopper, SkipValues::by_density);
  EXPECT_FALSE(step.counts_values());  // nothing decodes
}

TEST(AttentionStep, skips_values_as_they_were_counted) {
  AttentionStep step = make_step(AttentionKernels::both, kShape, kHopper, SkipValues::by_density);
  EXPECT_TRUE(step.counts_values());
  build(step, many_sequences());
  EXPECT_FALSE(step.skips_values());
  step.observe_values(counted(1 << 20, 1 << 18));
  EXPECT_FALSE(step.skips_values());  // of this plan nothing changes
  build(step, many_sequences());
  EXPECT_TRUE(step.skips_values());
  EXPECT_NEAR(step.value_density(), 0.25, 0.01);
  build(step, {{0, 1}, {300}});
  EXPECT_FALSE(step.skips_values());  // too small a launch
  step.observe_values(counted(1 << 27, (1 << 27) - (1 << 20)));
  build(step, many_sequences());
  EXPECT_FALSE(step.skips_values());
}

TEST(AttentionStep, captured_launches_do_not_follow_the_density) {
  AttentionStep step = make_step(AttentionKernels::decode, kShape, kHopper, SkipValues::by_density);
  expect_error([&] { step.fix({.sequences = 4, .tokens = 4, .context = 100}); },
               "skip_values: by density with captured launches");
  AttentionStep plain = make_step(AttentionKernels::decode, kShape, kAmpere, SkipValues::by_density);
  EXPECT_FALSE(plain.counts_values());
}

}  // namespace
}  // namespace asynct::extension
