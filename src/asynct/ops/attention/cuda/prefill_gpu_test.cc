// Prefill against the double reference, and against decode, row by row and bit by bit.

#include "asynct/ops/attention/cuda/gpu_test_case.h"

namespace asynct::cuda {
namespace {

/// What prefill takes.
Setting prefill_setting(Random& random) {
  Setting setting = random_setting(random);
  set_group(setting, pick_of<int>(random, {1, 2, 4, 8, 16}));
  setting.block_size = pick_of<std::int32_t>(random, {16, 32, 64, 128});
  return setting;
}

std::vector<TestSequence> some_sequences(Random& random, const Setting& setting) {
  std::vector<TestSequence> sequences;
  for (int i = pick(random, 1, 3); i > 0; --i) {
    const std::int32_t context = std::min(random_context(random), 1100);
    const std::int32_t rows = pick(random, 0, 1) == 0 ? context : pick(random, 1, context);
    sequences.push_back(sequence_of(random, setting, context, rows));
  }
  return sequences;
}

class Prefill : public ::testing::TestWithParam<int> {};

TEST_P(Prefill, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const Setting setting = prefill_setting(random);
  const std::vector<TestSequence> sequences = some_sequences(random, setting);
  expect_close(setting, sequences, prefill(setting, sequences));
}

INSTANTIATE_TEST_SUITE_P(Random, Prefill, ::testing::Range(0, 60));

/// Rows i, i + step, ... of a sequence of a prefill as decode makes them, each alone in its context.
void expect_decodes_bits(Random& random, const Setting& setting, const std::vector<TestSequence>& sequences,
                         std::int32_t step) {
  const std::vector<std::uint16_t> all = prefill(setting, sequences);
  const auto row_size =
      static_cast<std::size_t>(std::int64_t{setting.config.heads} * setting.config.head_dim);
  std::size_t at = 0;
  for (const TestSequence& s : sequences) {
    for (std::int32_t row = pick(random, 0, step - 1); row < s.rows; row += step) {
      const std::vector<std::uint16_t> alone = decode(setting, {window(s, s.context - s.rows + row + 1, 1)});
      const auto from =
          all.begin() + static_cast<std::ptrdiff_t>(at + static_cast<std::size_t>(row) * row_size);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), from)) << "context " << s.context << ", row " << row;
    }
    at += static_cast<std::size_t>(s.rows) * row_size;
  }
}

TEST(PrefillBits, are_decodes) {
  Random random(7);
  for (int round = 0; round < 8; ++round) {
    const Setting setting = prefill_setting(random);
    expect_decodes_bits(random, setting, some_sequences(random, setting), 97);
  }
}

TEST(PrefillBits, are_decodes_over_the_end_of_a_span) {
  Random random(8);
  for (const int dims : {64, 128}) {
    Setting setting = prefill_setting(random);
    setting.config.head_dim = dims;
    const std::int32_t context = 2 * kSpanChunks * kChunkKeys + 700;
    const std::vector<TestSequence> sequences = {sequence_of(random, setting, context, 60)};
    expect_close(setting, sequences, prefill(setting, sequences));
    expect_decodes_bits(random, setting, sequences, 29);
  }
}

TEST(PrefillBits, do_not_depend_on_batch_or_chunk) {
  Random random(9);
  for (int round = 0; round < 6; ++round) {
    const Setting setting = prefill_setting(random);
    const TestSequence whole = sequence_of(random, setting, 900, 900);
    const std::vector<std::uint16_t> together =
        prefill(setting, {sequence_of(random, setting, 77, 77), whole, sequence_of(random, setting, 300, 5)});
    const auto row_size =
        static_cast<std::size_t>(std::int64_t{setting.config.heads} * setting.config.head_dim);
    for (std::int32_t end = 0; end < 900;) {
      const std::int32_t begin = end;
      end = std::min(900, end + pick(random, 1, 400));
      const std::vector<std::uint16_t> chunk = prefill(setting, {window(whole, end, end - begin)});
      const auto from = static_cast<std::size_t>(77 + begin) * row_size;
      std::size_t wrong = 0;
      std::size_t first = 0;
      for (std::size_t i = chunk.size(); i-- > 0;)
        if (chunk[i] != together[from + i]) ++wrong, first = i;
      EXPECT_EQ(wrong, 0u) << "round " << round << ", rows " << begin << " to " << end << ", first at row "
                           << first / row_size << ", column " << first % row_size << ": " << std::hex
                           << chunk[first] << " and " << together[from + first];
    }
  }
}

TEST(PrefillNan, reaches_the_rows_that_see_it) {
  Random random(10);
  for (int round = 0; round < 4; ++round) {
    Setting setting = prefill_setting(random);
    setting.config.heads = 2 * setting.config.kv_heads;
    setting.params = {.sigma = std::vector<float>(static_cast<std::size_t>(setting.config.heads), 0.4F)};
    TestSequence s = sequence_of(random, setting, 400, 400);
    const auto key = static_cast<std::size_t>(pick(random, 0, 399));
    s.keys[key * static_cast<std::size_t>(setting.config.kv_heads * setting.config.head_dim)] = std::nanf("");
    const std::vector<std::uint16_t> out = prefill(setting, {s});
    const auto dims = static_cast<std::size_t>(setting.config.head_dim);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / dims / static_cast<std::size_t>(setting.config.heads);
      const std::size_t head = i / dims % static_cast<std::size_t>(setting.config.heads);
      wrong += std::isnan(value_of(out[i], setting.dtype)) != (head < 2 && row >= key) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0u) << "key " << key;
  }
}

TEST(PrefillErrors, name_what_is_not_there) {
  PrefillArgs args;
  args.unit_count = 1;
  EXPECT_THROW(run_prefill(args, DType::bf16, 96, 3, nullptr), Error);
  EXPECT_THROW(run_prefill(args, DType::bf16, 128, 4, nullptr), Error);
  EXPECT_THROW(run_prefill(args, DType::f32, 128, 3, nullptr), Error);
  EXPECT_THROW(set_tensors(args, {.heads = 3, .kv_heads = 1, .head_dim = 64}, {}, {}), Error);
  EXPECT_THROW(set_tensors(args, {.heads = 1, .kv_heads = 1, .head_dim = 64, .block_size = 8}, {}, {}),
               Error);
}

}  // namespace
}  // namespace asynct::cuda
