// Decode against the double reference, and against itself: bits do not depend on what runs beside.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "asynct/ops/attention/attention_test_case.h"
#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/cuda/device_buffer.h"

namespace asynct::cuda {
namespace {

constexpr std::int32_t kWarps = 8 * 132;

struct Setting {
  AttentionConfig config;
  AttentionHeadParams params;
  DType dtype = DType::bf16;
  Layout layout = Layout::flash;
  std::int32_t block_size = 16;
  std::int32_t warps = kWarps;  // the plan's: how long units are
  unsigned placement = 1;
};

std::uint16_t bits_of(float value, DType dtype) {
  return dtype == DType::bf16 ? to_bf16(value).bits : to_f16(value).bits;
}
float value_of(std::uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

/// The element type's values, so that the reference sees what the kernel sees.
void round_all(std::vector<float>& values, DType dtype) {
  for (float& v : values) v = value_of(bits_of(v, dtype), dtype);
}

TestSequence sequence_of(Random& random, const Setting& setting, std::int32_t context, std::int32_t rows) {
  TestSequence s = make_sequence(random, setting.config, context, rows, DType::f32);
  round_all(s.q, setting.dtype);
  round_all(s.keys, setting.dtype);
  round_all(s.values, setting.dtype);
  return s;
}

KvView view_of(const Setting& setting) {
  const std::int64_t heads = setting.config.kv_heads;
  const std::int64_t dims = setting.config.head_dim;
  const std::int64_t size = setting.block_size;
  switch (setting.layout) {
    case Layout::own:
      return {nullptr, heads * size * dims, size * dims, dims};
    case Layout::packed:
      return {nullptr, heads * size * 2 * dims, size * 2 * dims, 2 * dims};
    default:
      return {nullptr, size * heads * dims, dims, heads * dims};
  }
}

/// Output rows of all sequences as the element type's bits; NaN wherever nothing was written, in slots too.
std::vector<std::uint16_t> run(const Setting& setting, const std::vector<TestSequence>& sequences,
                               std::int32_t poisoned_below = 0) {
  const AttentionConfig& config = setting.config;
  const std::int64_t dims = config.head_dim;
  const std::int32_t size = setting.block_size;
  std::int32_t most = 1;
  std::int32_t used = 0;
  for (const TestSequence& s : sequences) {
    most = std::max(most, divide_up(s.context, size));
    used += divide_up(s.context, size);
  }
  const std::int32_t blocks = used + 3;
  std::vector<std::int32_t> free(static_cast<std::size_t>(blocks));
  for (std::size_t i = 0; i < free.size(); ++i) free[i] = static_cast<std::int32_t>(i);
  Random placement(setting.placement);
  std::shuffle(free.begin(), free.end(), placement);

  const std::uint16_t nan = bits_of(std::numeric_limits<float>::quiet_NaN(), setting.dtype);
  const std::int64_t elements = std::int64_t{blocks} * config.kv_heads * size * dims;
  std::vector<std::uint16_t> cache(static_cast<std::size_t>(2 * elements), nan);
  KvView view = view_of(setting);
  const std::int64_t value_at = setting.layout == Layout::packed ? dims : elements;

  std::vector<std::int32_t> table(sequences.size() * static_cast<std::size_t>(most), -1);
  std::vector<std::int32_t> query_start = {0};
  std::vector<std::int32_t> lengths;
  std::vector<std::uint16_t> query;
  std::int32_t rows = 1;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TestSequence& s = sequences[i];
    for (std::int32_t j = 0; j < s.context; ++j) {
      std::int32_t& block = table[i * static_cast<std::size_t>(most) + static_cast<std::size_t>(j / size)];
      if (block < 0) {
        block = free.back();
        free.pop_back();
      }
      for (std::int64_t h = 0; h < config.kv_heads; ++h)
        for (std::int64_t d = 0; d < dims; ++d) {
          const auto from = static_cast<std::size_t>((j * config.kv_heads + h) * dims + d);
          const auto to = static_cast<std::size_t>(block * view.block_stride + h * view.head_stride +
                                                   (j % size) * view.token_stride + d);
          cache[to] = bits_of(s.keys[from], setting.dtype);
          cache[to + static_cast<std::size_t>(value_at)] =
              j < poisoned_below ? nan : bits_of(s.values[from], setting.dtype);
        }
    }
    for (auto q = s.q.end() - std::int64_t{s.rows} * config.heads * dims; q != s.q.end(); ++q)
      query.push_back(bits_of(*q, setting.dtype));
    query_start.push_back(query_start.back() + s.rows);
    lengths.push_back(s.context);
    rows = std::max(rows, s.rows);
  }

  DecodePlan plan;
  plan.build(query_start, lengths, config.kv_heads, setting.warps);
  const DeviceBuffer<std::uint16_t> device_cache(cache);
  const DeviceBuffer<std::uint16_t> device_query(query);
  const DeviceBuffer<std::int32_t> device_table(table);
  const DeviceBuffer<HeadFactors> factors(head_factors(config, setting.params));
  const DeviceBuffer<DecodeUnit> units(plan.units);
  DeviceBuffer<std::uint16_t> out(query.size());
  DeviceBuffer<float> partial(static_cast<std::size_t>(plan.slots * kDecodeRows * dims));
  DeviceBuffer<std::uint32_t> arrived(static_cast<std::size_t>(2 * plan.slots));
  out.fill_bytes(0xFF);
  partial.fill_bytes(0xFF);
  arrived.fill_bytes(0);
  view.data = device_cache.data();
  KvView value = view;
  value.data = device_cache.data() + value_at;
  std::int32_t shift = 0;
  while (1 << shift < size) ++shift;
  DecodeArgs args = {.query = device_query.data(),
                     .out = out.data(),
                     .query_stride = config.heads * dims,
                     .out_stride = config.heads * dims,
                     .value = value,
                     .block_table = device_table.data(),
                     .factors = factors.data(),
                     .units = units.data(),
                     .partial = partial.data(),
                     .arrived = arrived.data(),
                     .slots = plan.slots,
                     .unit_count = static_cast<std::int32_t>(plan.units.size()),
                     .max_blocks = most,
                     .block_shift = shift,
                     .group = config.heads / config.kv_heads,
                     .most_rows = rows * (config.heads / config.kv_heads),
                     .pool_floor = config.pool_relu ? 0 : -std::numeric_limits<float>::infinity()};
  set_keys(args, view, setting.dtype, blocks, size, config.kv_heads, config.head_dim);
  run_decode(args, setting.dtype, config.head_dim, config.pool_size, nullptr);
  std::vector<std::uint16_t> first = out.download();
  for (const std::uint32_t count : arrived.download()) EXPECT_EQ(count, 0u);
  out.fill_bytes(0xFF);
  run_decode(args, setting.dtype, config.head_dim, config.pool_size, nullptr);
  EXPECT_EQ(out.download(), first);  // counters are as they were
  return first;
}

void expect_close(const Setting& setting, const std::vector<TestSequence>& sequences,
                  const std::vector<std::uint16_t>& got) {
  std::size_t at = 0;
  for (const TestSequence& s : sequences) {
    const auto wanted = static_cast<std::size_t>(s.rows * setting.config.heads * setting.config.head_dim);
    const std::vector<double> want =
        reference_attention(setting.config, setting.params, std::span(s.q).last(wanted), s.keys, s.values);
    double error = 0;
    double norm = 1e-30;
    for (std::size_t i = 0; i < wanted; ++i, ++at) {
      const double difference = value_of(got[at], setting.dtype) - want[i];
      error += difference * difference;
      norm += want[i] * want[i];
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-2) << "context " << s.context << ", rows " << s.rows;
  }
}

Setting random_setting(Random& random) {
  Setting setting;
  const int group = pick_of<int>(random, {1, 2, 3, 4, 7, 8, 16});
  const int kv_heads = pick(random, 1, 3);
  setting.config = {.heads = group * kv_heads,
                    .kv_heads = kv_heads,
                    .head_dim = pick_of<int>(random, {64, 128}),
                    .pool_size = pick_of<int>(random, {1, 2, 3, 3, 5}),
                    .pool_relu = pick(random, 0, 3) > 0};
  setting.config.scale = 1 / std::sqrt(static_cast<float>(setting.config.head_dim));
  std::uniform_real_distribution<float> around(-0.2F, 1.2F);
  for (int h = 0; h < setting.config.heads; ++h) {
    setting.params.sigma.push_back(around(random) * (pick(random, 0, 5) == 0 ? 10.F : 1.F));
    setting.params.slope.push_back(0.5F + around(random));
    setting.params.bias.push_back(0.1F * around(random));
    setting.params.gain.push_back(0.5F + around(random));
  }
  setting.dtype = pick_of<DType>(random, {DType::bf16, DType::f16});
  setting.layout = pick_of<Layout>(random, {Layout::own, Layout::flash, Layout::packed});
  setting.block_size = pick_of<std::int32_t>(random, {8, 16, 32, 64, 128});
  setting.warps = pick_of<std::int32_t>(random, {1, 8, 64, kWarps});
  setting.placement = static_cast<unsigned>(pick(random, 1, 1000));
  return setting;
}

std::int32_t random_context(Random& random) {
  const int border =
      pick_of<int>(random, {1, 8, 16, 32, 64, 128, 240, 256, 512, 600, 1024, 2048, 4096, 4352});
  return std::max(1, border + pick(random, -2, 2));
}

class Decode : public ::testing::TestWithParam<int> {};

TEST_P(Decode, equals_the_reference) {
  Random random(static_cast<unsigned>(GetParam()));
  const Setting setting = random_setting(random);
  const int most_rows = kDecodeRows / (setting.config.heads / setting.config.kv_heads);
  std::vector<TestSequence> sequences;
  for (int i = pick(random, 1, 5); i > 0; --i) {
    const std::int32_t context = random_context(random);
    const std::int32_t rows = pick(random, 0, 2) == 0 ? pick(random, 1, most_rows) : 1;
    sequences.push_back(sequence_of(random, setting, context, std::min(rows, context)));
  }
  expect_close(setting, sequences, run(setting, sequences));
}

INSTANTIATE_TEST_SUITE_P(Random, Decode, ::testing::Range(0, 150));

TEST(DecodeBits, do_not_depend_on_batch_plan_layout_or_placement) {
  Random random(3);
  for (int round = 0; round < 12; ++round) {
    Setting setting = random_setting(random);
    const std::int32_t rows = 1;
    const std::vector<TestSequence> some = {
        sequence_of(random, setting, random_context(random), rows),
        sequence_of(random, setting, 5000 + pick(random, -300, 300), rows),
        sequence_of(random, setting, random_context(random), rows)};
    const std::vector<std::uint16_t> together = run(setting, some);
    const std::size_t row = together.size() / some.size();
    for (std::size_t i = 0; i < some.size(); ++i) {
      Setting other = setting;
      other.warps = pick_of<std::int32_t>(random, {1, 16, 64, kWarps});
      other.block_size = pick_of<std::int32_t>(random, {8, 16, 32, 64, 128});
      other.layout = pick_of<Layout>(random, {Layout::own, Layout::flash, Layout::packed});
      other.placement = 17 + static_cast<unsigned>(round);
      const std::vector<std::uint16_t> alone = run(other, {some[i]});
      EXPECT_TRUE(
          std::equal(alone.begin(), alone.end(), together.begin() + static_cast<std::ptrdiff_t>(i * row)))
          << "round " << round << ", sequence " << i;
    }
  }
}

TEST(DecodeBits, do_not_depend_on_how_many_rows_run_at_once) {
  Random random(4);
  for (int round = 0; round < 6; ++round) {
    Setting setting = random_setting(random);
    const int group = setting.config.heads / setting.config.kv_heads;
    if (group > 4) continue;
    const std::int32_t context = 700 + pick(random, 0, 600);
    const std::int32_t rows = kDecodeRows / group;
    const TestSequence whole = sequence_of(random, setting, context, rows);
    const std::vector<std::uint16_t> together = run(setting, {whole});
    for (std::int32_t i = 0; i < rows; ++i) {
      const std::vector<std::uint16_t> alone = run(setting, {window(whole, context - rows + i + 1, 1)});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             together.begin() + static_cast<std::ptrdiff_t>(alone.size()) * i))
          << "round " << round << ", row " << i;
    }
  }
}

TEST(DecodeSkips, values_that_no_row_gives_weight_are_not_read) {
  Random random(5);
  for (const int dims : {64, 128}) {
    Setting setting;
    setting.config = {.heads = 4, .kv_heads = 2, .head_dim = dims, .scale = 0.1F};
    setting.params.sigma.assign(4, 0.5F);
    const std::int32_t context = 1500;
    const std::int32_t dead = 1000;  // keys that point away from the query
    TestSequence s = sequence_of(random, setting, context, 1);
    const auto columns = static_cast<std::size_t>(2 * dims);
    std::fill(s.q.end() - 4 * dims, s.q.end(), 1.F);
    for (std::size_t i = 0; i < dead * columns; ++i) s.keys[i] = -std::abs(s.keys[i]);
    for (std::size_t i = dead * columns; i < s.keys.size(); ++i) s.keys[i] = std::abs(s.keys[i]);
    const std::vector<std::uint16_t> clean = run(setting, {s});
    expect_close(setting, {s}, clean);
    EXPECT_EQ(run(setting, {s}, dead), clean);  // NaN in their values changes nothing
  }
}

TEST(DecodeErrors, name_what_is_not_there) {
  const auto expect = [](DecodeArgs args, DType dtype, int dims, int pool, const char* words) {
    args.unit_count = 1;
    try {
      run_decode(args, dtype, dims, pool, nullptr);
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  expect({}, DType::bf16, 96, 3, "head_dim 96");
  expect({}, DType::bf16, 128, 4, "pool_size 4");
  expect({}, DType::f32, 128, 3, "dtype fp32");
}

}  // namespace
}  // namespace asynct::cuda
