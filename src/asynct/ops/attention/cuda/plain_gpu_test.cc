// The plain path against the double reference, against the kernels for sm_90a, and against itself: bits do
// not depend on what runs beside, on how rows are cut into units, nor on where keys lie.

#include "asynct/ops/attention/cuda/plain.h"

#include "asynct/ops/attention/cuda/gpu_test_case.h"

namespace asynct::cuda {
namespace {

/// vLLM's four orders of blocks, keys and values, heads and tokens; keys and values side by side; no blocks.
enum class Order { nhd, hnd, blocks_nhd, blocks_hnd, packed, contiguous };
const std::vector<Order> kOrders = {Order::nhd,        Order::hnd,    Order::blocks_nhd,
                                    Order::blocks_hnd, Order::packed, Order::contiguous};

struct PlainSetting : Setting {
  Order order = Order::nhd;
};

/// Keys and values on the device in any order, NaN in slots that no sequence wrote.
struct PlainCache {
  PlainCache(const PlainSetting& setting, const std::vector<TestSequence>& sequences, const DeviceStep& step);

  KvView key, value;
  DeviceBuffer<std::uint16_t> slots;
  DeviceBuffer<std::int64_t> first_key;
};

PlainCache::PlainCache(const PlainSetting& setting, const std::vector<TestSequence>& sequences,
                       const DeviceStep& step) {
  const std::int64_t dims = setting.config.head_dim;
  const std::int64_t heads = setting.config.kv_heads;
  std::int64_t size = setting.block_size;
  std::int64_t blocks = step.blocks;
  std::vector<std::int64_t> first(sequences.size());
  if (setting.order == Order::contiguous) {
    size = 1;
    blocks = 3;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      first[i] = blocks;
      blocks += sequences[i].context + 2 + setting.placement % 7;
    }
  }
  const std::int64_t elements = blocks * heads * size * dims;
  std::int64_t value_at = elements;
  switch (setting.order) {
    case Order::nhd:
    case Order::contiguous:
      key = {nullptr, size * heads * dims, dims, heads * dims};
      break;
    case Order::hnd:
      key = {nullptr, heads * size * dims, size * dims, dims};
      break;
    case Order::blocks_nhd:
      key = {nullptr, 2 * size * heads * dims, dims, heads * dims};
      value_at = size * heads * dims;
      break;
    case Order::blocks_hnd:
      key = {nullptr, 2 * heads * size * dims, size * dims, dims};
      value_at = size * heads * dims;
      break;
    case Order::packed:
      key = {nullptr, heads * size * 2 * dims, size * 2 * dims, 2 * dims};
      value_at = dims;
      break;
  }
  const std::vector<std::int32_t> table = step.table.download();
  std::vector<std::uint16_t> host(static_cast<std::size_t>(2 * elements),
                                  bits_of(std::numeric_limits<float>::quiet_NaN(), setting.dtype));
  for (std::size_t i = 0; i < sequences.size(); ++i)
    for (std::int64_t j = 0; j < sequences[i].context; ++j)
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t block =
            setting.order == Order::contiguous
                ? first[i] + j
                : table[i * static_cast<std::size_t>(step.max_blocks) + static_cast<std::size_t>(j / size)];
        const std::int64_t to = block * key.block_stride + h * key.head_stride + j % size * key.token_stride;
        for (std::int64_t d = 0; d < dims; ++d) {
          const auto from = static_cast<std::size_t>((j * heads + h) * dims + d);
          host[static_cast<std::size_t>(to + d)] = bits_of(sequences[i].keys[from], setting.dtype);
          host[static_cast<std::size_t>(to + d + value_at)] =
              bits_of(sequences[i].values[from], setting.dtype);
        }
      }
  slots = DeviceBuffer<std::uint16_t>(host);
  first_key = DeviceBuffer<std::int64_t>(first);
  value = key;
  key.data = slots.data();
  value.data = slots.data() + value_at;
}

/// Output rows of all sequences as the element type's bits.
std::vector<std::uint16_t> plain(const PlainSetting& setting, const std::vector<TestSequence>& sequences) {
  const AttentionConfig& config = setting.config;
  const DeviceStep step(setting, sequences);
  const PlainCache cache(setting, sequences, step);
  PlainPlan plan;
  plan.build(step.query_start, step.context_length, config.kv_heads, config.heads / config.kv_heads);
  const DeviceBuffer<DecodeUnit> few(plan.few.units);
  const DeviceBuffer<PrefillUnit> many(plan.many.units);
  DeviceBuffer<std::uint16_t> out(step.query.size()), earlier(step.query.size());
  DeviceBuffer<float> partial(static_cast<std::size_t>(plan.few.slots * kDecodeRows * config.head_dim));
  DeviceBuffer<std::uint32_t> arrived(static_cast<std::size_t>(2 * plan.few.slots));
  DeviceBuffer<float> sums(static_cast<std::size_t>(std::int64_t{2} * plain_blocks(config.head_dim) *
                                                    kPlainRows * config.head_dim));
  out.fill_bytes(0xFF);
  earlier.fill_bytes(0xFF);
  partial.fill_bytes(0xFF);
  sums.fill_bytes(0xFF);
  arrived.fill_bytes(0);
  const std::int64_t columns = std::int64_t{config.heads} * config.head_dim;
  PlainArgs args = {.query = step.query.data(),
                    .out = earlier.data(),
                    .query_stride = columns,
                    .out_stride = columns,
                    .key = cache.key,
                    .value = cache.value,
                    .block_table = setting.order == Order::contiguous ? nullptr : step.table.data(),
                    .first_key = cache.first_key.data(),
                    .factors = step.factors.data(),
                    .few = few.data(),
                    .many = many.data(),
                    .partial = partial.data(),
                    .arrived = arrived.data(),
                    .sums = sums.data(),
                    .slots = plan.few.slots,
                    .few_count = static_cast<std::int32_t>(plan.few.units.size()),
                    .many_count = static_cast<std::int32_t>(plan.many.units.size()),
                    .max_blocks = step.max_blocks,
                    .block_size = setting.block_size,
                    .group = config.heads / config.kv_heads,
                    .form = step.form};
  run_plain(args, setting.dtype, config.head_dim, config.pool_size, nullptr);
  args.out = out.data();
  run_plain(args, setting.dtype, config.head_dim, config.pool_size, nullptr);
  std::vector<std::uint16_t> result = out.download();
  EXPECT_EQ(earlier.download(), result);
  for (const std::uint32_t count : arrived.download()) EXPECT_EQ(count, 0u);
  return result;
}

PlainSetting plain_setting(Random& random) {
  PlainSetting setting = {random_setting(random)};
  setting.config.head_dim = pick_of<int>(random, {64, 128, 256});
  if (setting.config.head_dim == 256) setting.config.scale = pick(random, 0, 1) == 0 ? 1 / 16.F : 1 / 19.F;
  set_group(setting, pick_of<int>(random, {1, 2, 3, 4, 5, 6, 7, 8, 16}));
  setting.block_size = pick_of<std::int32_t>(random, {1, 3, 8, 16, 24, 64});
  setting.order = pick_of<Order>(random, kOrders);
  return setting;
}

class PlainCase : public ::testing::TestWithParam<int> {};

/// Few rows and many, beside each other.
TEST_P(PlainCase, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const PlainSetting setting = plain_setting(random);
  std::vector<TestSequence> sequences;
  for (int i = pick(random, 1, 4); i > 0; --i) {
    const std::int32_t context = std::min(random_context(random), 2100);
    const std::int32_t rows = pick(random, 0, 1) == 0 ? pick(random, 1, 4) : pick(random, 1, 120);
    sequences.push_back(sequence_of(random, setting, context, std::min(rows, context)));
  }
  expect_close(setting, sequences, plain(setting, sequences));
}

INSTANTIATE_TEST_SUITE_P(Random, PlainCase, ::testing::Range(0, 120));

TEST(Plain, all_pools_groups_and_block_sizes_equal_the_reference) {
  Random random(20);
  for (const int dims : {64, 128, 256})
    for (const int pool : {1, 2, 3, 5})
      for (const int group : {1, 2, 3, 4, 5, 7, 8, 16}) {
        PlainSetting setting = plain_setting(random);
        setting.config.head_dim = dims;
        setting.config.pool_size = pool;
        setting.config.kv_heads = pick(random, 1, 2);
        set_group(setting, group);
        setting.block_size = pick_of<std::int32_t>(random, {1, 8, 16, 24, 64});
        const std::vector<TestSequence> sequences = {sequence_of(random, setting, 1030, 1),
                                                     sequence_of(random, setting, 70, 70)};
        expect_close(setting, sequences, plain(setting, sequences));
      }
}

TEST(Plain, many_units_a_block_equal_the_reference) {
  Random random(21);
  for (const int dims : {64, 128, 256}) {
    PlainSetting setting = plain_setting(random);
    setting.config.head_dim = dims;
    setting.config.kv_heads = 2;
    set_group(setting, 8);
    std::vector<TestSequence> sequences;
    sequences.reserve(550);
    for (int i = 0; i < 450; ++i)
      sequences.push_back(sequence_of(random, setting, i % 150 == 0 ? 1200 : pick(random, 3, 60), 3));
    for (int i = 0; i < 100; ++i) sequences.push_back(sequence_of(random, setting, pick(random, 2, 60), 1));
    expect_close(setting, sequences, plain(setting, sequences));
  }
}

/// `part` is what lies in `all` from `first` on.
void expect_rows(const std::vector<std::uint16_t>& part, const std::vector<std::uint16_t>& all,
                 std::size_t first, const std::string& what) {
  ASSERT_LE(first + part.size(), all.size()) << what;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < part.size(); ++i) wrong += part[i] != all[first + i];
  EXPECT_EQ(wrong, 0U) << what << ", of " << part.size();
}

PlainSetting somewhere_else(Random& random, PlainSetting setting) {
  setting.block_size = pick_of<std::int32_t>(random, {1, 8, 16, 24, 64});
  setting.order = pick_of<Order>(random, kOrders);
  setting.placement = static_cast<unsigned>(pick(random, 1, 1000));
  return setting;
}

TEST(PlainBits, do_not_depend_on_batch_chunk_order_or_placement) {
  Random random(22);
  for (int round = 0; round < 10; ++round) {
    PlainSetting setting = plain_setting(random);
    setting.config.kv_heads = 1;
    set_group(setting, pick_of<int>(random, {1, 2, 3, 7, 8}));
    const std::int32_t length = round < 3 ? 2300 : 600;
    const TestSequence whole = sequence_of(random, setting, length, length);
    const std::vector<std::uint16_t> together =
        plain(setting, {sequence_of(random, setting, 77, 77), whole, sequence_of(random, setting, 300, 1)});
    const auto row_size =
        static_cast<std::size_t>(std::int64_t{setting.config.heads} * setting.config.head_dim);
    for (std::int32_t end = 0; end < length;) {
      const std::int32_t begin = end;
      const std::int32_t most = pick_of<std::int32_t>(random, {1, 3, 16, 70, 500});
      end = std::min(length, end + pick(random, 1, most));
      if (most < 70 && end + 40 < length) {  // few rows here and there
        expect_rows(plain(somewhere_else(random, setting), {window(whole, end, end - begin)}), together,
                    static_cast<std::size_t>(77 + begin) * row_size, "rows to " + std::to_string(end));
        end += pick(random, 0, 40);
        continue;
      }
      std::vector<std::uint16_t> chunk =
          plain(somewhere_else(random, setting),
                {window(whole, end, end - begin), sequence_of(random, setting, 40, 2)});
      chunk.resize(static_cast<std::size_t>(end - begin) * row_size);
      expect_rows(chunk, together, static_cast<std::size_t>(77 + begin) * row_size,
                  "chunk to " + std::to_string(end));
    }
  }
}

TEST(PlainBits, of_few_rows_and_many_agree_over_the_end_of_a_span) {
  Random random(23);
  for (const int dims : {64, 128, 256}) {
    PlainSetting setting = plain_setting(random);
    setting.config.head_dim = dims;
    setting.config.kv_heads = 1;
    set_group(setting, dims == 128 ? 3 : 1);
    const std::int32_t context = 2 * kSpanChunks * kChunkKeys + 700;
    const TestSequence whole = sequence_of(random, setting, context, 40);
    const std::vector<std::uint16_t> all = plain(setting, {whole});
    expect_close(setting, {whole}, all);
    for (std::int32_t row = 0; row < 40; row += 13)
      expect_rows(plain(somewhere_else(random, setting), {window(whole, context - 40 + row + 1, 1)}), all,
                  static_cast<std::size_t>(std::int64_t{row} * setting.config.heads * dims),
                  "row " + std::to_string(row));
  }
}

/// What the kernels for sm_90a take.
PlainSetting hopper_setting(Random& random, bool is_prefill) {
  PlainSetting setting = plain_setting(random);
  setting.config.head_dim = pick_of<int>(random, {64, 128});
  setting.block_size = pick_of<std::int32_t>(random, {16, 64});
  if (!is_prefill) return setting;
  set_group(setting, pick_of<int>(random, {1, 2, 4, 8, 16}));
  return setting;
}

TEST(PlainBits, are_those_of_decode_for_sm_90a) {
  Random random(24);
  for (int round = 0; round < 40; ++round) {
    const PlainSetting setting = hopper_setting(random, false);
    const int most_rows = kDecodeRows / (setting.config.heads / setting.config.kv_heads);
    std::vector<TestSequence> sequences;
    for (int i = 0; i < 4; ++i) {
      const std::int32_t context = round == 0 && i == 0 ? 17 * kChunkKeys + 5 : random_context(random);
      sequences.push_back(
          sequence_of(random, setting, context, std::min(pick(random, 1, most_rows), context)));
    }
    expect_rows(plain(setting, sequences), decode(setting, sequences), 0, "round " + std::to_string(round));
  }
}

TEST(PlainBits, are_those_of_prefill_for_sm_90a) {
  Random random(25);
  for (int round = 0; round < 24; ++round) {
    const PlainSetting setting = hopper_setting(random, true);
    const std::int32_t context = round == 0 ? 17 * kChunkKeys + 5 : std::min(random_context(random), 2100);
    const std::vector<TestSequence> sequences = {
        sequence_of(random, setting, context, std::min(context, round == 0 ? 90 : pick(random, 1, 1500))),
        sequence_of(random, setting, 130, 130)};
    expect_rows(plain(setting, sequences), prefill(setting, sequences), 0, "round " + std::to_string(round));
  }
}

/// A key that is no number makes the rows that see it none either, and no others.
TEST(PlainNan, reaches_the_rows_that_see_it) {
  Random random(26);
  for (int round = 0; round < 12; ++round) {
    PlainSetting setting = plain_setting(random);
    set_group(setting, 2);
    setting.params = {.sigma = std::vector<float>(static_cast<std::size_t>(setting.config.heads), 0.4F)};
    const std::int32_t rows = round % 2 == 0 ? 4 : 50;
    TestSequence s = sequence_of(random, setting, 700, rows);
    const auto key = static_cast<std::size_t>(pick(random, 0, 1) == 0 ? 698 : pick(random, 0, 690));
    s.keys[key * static_cast<std::size_t>(setting.config.kv_heads * setting.config.head_dim)] = std::nanf("");
    const std::vector<std::uint16_t> out = plain(setting, {s, sequence_of(random, setting, 300, 1)});
    const auto dims = static_cast<std::size_t>(setting.config.head_dim);
    const auto many = static_cast<std::size_t>(rows);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / dims / static_cast<std::size_t>(setting.config.heads);
      const std::size_t head = i / dims % static_cast<std::size_t>(setting.config.heads);
      const bool sees = row < many && head < 2 && 700 - many + row >= key;  // the NaN is the first KV head's
      ASSERT_EQ(std::isnan(value_of(out[i], setting.dtype)), sees) << "row " << row << ", head " << head;
    }
  }
}

}  // namespace
}  // namespace asynct::cuda
