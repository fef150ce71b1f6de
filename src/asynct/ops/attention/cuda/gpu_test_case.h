#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "asynct/ops/attention/attention_test_case.h"
#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/prefill.h"
#include "asynct/ops/attention/cuda/softmax.h"
#include "asynct/ops/cuda/device_buffer.h"

// Sequences in a paged cache on the device, in any layout, and what the kernels make of them.
namespace asynct::cuda {

/// own: [2, blocks, H, block, D]. vLLM's, oldest first: flash: [2, blocks, block, H, D]; pairs: [blocks, 2,
/// block, H, D]; rows: [blocks, block, H, 2 D]; heads: [blocks, H, block, 2 D]; layers: that with three
/// layers in a block.
enum class CacheLayout { own, flash, pairs, rows, heads, layers };

inline const std::vector<CacheLayout> kLayouts = {CacheLayout::own,  CacheLayout::flash, CacheLayout::pairs,
                                                  CacheLayout::rows, CacheLayout::heads, CacheLayout::layers};

struct Setting {
  AttentionConfig config;
  AttentionHeadParams params;
  DType dtype = DType::bf16;
  CacheLayout layout = CacheLayout::flash;
  std::int32_t block_size = 16;
  bool skip_values = false;
  unsigned placement = 1;
};

inline std::uint16_t bits_of(float value, DType dtype) {
  return dtype == DType::bf16 ? to_bf16(value).bits : to_f16(value).bits;
}
inline float value_of(std::uint16_t bits, DType dtype) {
  return dtype == DType::bf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

/// The element type's values, so that the reference sees what the kernel sees.
inline void round_all(std::vector<float>& values, DType dtype) {
  for (float& v : values) v = value_of(bits_of(v, dtype), dtype);
}

inline TestSequence sequence_of(Random& random, const Setting& setting, std::int32_t context,
                                std::int32_t rows) {
  TestSequence s = make_sequence(random, setting.config, context, rows, DType::f32);
  round_all(s.q, setting.dtype);
  round_all(s.keys, setting.dtype);
  round_all(s.values, setting.dtype);
  return s;
}

/// As sequence_of(), for long contexts: cheaper numbers, and queries of the step's rows alone.
inline TestSequence long_sequence(Random& random, const Setting& setting, std::int32_t context,
                                  std::int32_t rows) {
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::uint32_t state = random() | 1;
    for (float& v : values) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      v = value_of(bits_of(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1.8p-31F, setting.dtype),
                   setting.dtype);
    }
    return values;
  };
  const AttentionConfig& config = setting.config;
  const std::int64_t columns = std::int64_t{context} * config.kv_heads * config.head_dim;
  return {context, rows, numbers(std::int64_t{rows} * config.heads * config.head_dim), numbers(columns),
          numbers(columns)};
}

/// Strides of keys and values and where they begin in an allocation of `elements`.
struct CachePlace {
  KvView strides;
  std::int64_t key_at = 0, value_at = 0, elements = 0;
};

inline CachePlace place_of(const Setting& setting, std::int64_t blocks) {
  const std::int64_t heads = setting.config.kv_heads;
  const std::int64_t dims = setting.config.head_dim;
  const std::int64_t size = setting.block_size;
  const std::int64_t block = heads * size * dims;  // of keys alone
  const std::int64_t all = 2 * blocks * block;
  switch (setting.layout) {
    case CacheLayout::own:
      return {{nullptr, block, size * dims, dims}, 0, blocks * block, all};
    case CacheLayout::flash:
      return {{nullptr, block, dims, heads * dims}, 0, blocks * block, all};
    case CacheLayout::pairs:
      return {{nullptr, 2 * block, dims, heads * dims}, 0, block, all};
    case CacheLayout::rows:
      return {{nullptr, 2 * block, 2 * dims, 2 * heads * dims}, 0, dims, all};
    case CacheLayout::heads:
      return {{nullptr, 2 * block, 2 * size * dims, 2 * dims}, 0, dims, all};
    case CacheLayout::layers:  // the second of three
      return {{nullptr, 6 * block, 2 * size * dims, 2 * dims}, 2 * block, 2 * block + dims, 3 * all};
  }
  return {};
}

/// A step on the device: NaN in slots that no sequence wrote, and in values of keys below `poisoned_below`.
struct DeviceStep {
  DeviceStep(const Setting& setting, const std::vector<TestSequence>& sequences,
             std::int32_t poisoned_below = 0);

  KvView key, value;
  std::int32_t blocks = 0, max_blocks = 1, block_shift = 0, most_rows = 1;
  std::vector<std::int32_t> query_start = {0}, context_length;
  DeviceBuffer<std::uint16_t> cache, query;
  DeviceBuffer<std::int32_t> table;
  DeviceBuffer<HeadFactors> factors;
  WeightForm form;
};

inline DeviceStep::DeviceStep(const Setting& setting, const std::vector<TestSequence>& sequences,
                              std::int32_t poisoned_below) {
  const AttentionConfig& config = setting.config;
  const std::int64_t dims = config.head_dim;
  const std::int32_t size = setting.block_size;
  std::int32_t used = 0;
  for (const TestSequence& s : sequences) {
    max_blocks = std::max(max_blocks, divide_up(s.context, size));
    used += divide_up(s.context, size);
  }
  blocks = used + 3;
  std::vector<std::int32_t> free(static_cast<std::size_t>(blocks));
  for (std::size_t i = 0; i < free.size(); ++i) free[i] = static_cast<std::int32_t>(i);
  Random placement(setting.placement);
  std::shuffle(free.begin(), free.end(), placement);

  const std::uint16_t nan = bits_of(std::numeric_limits<float>::quiet_NaN(), setting.dtype);
  const CachePlace place = place_of(setting, blocks);
  std::vector<std::uint16_t> slots(static_cast<std::size_t>(place.elements), nan);
  key = value = place.strides;
  std::vector<std::int32_t> block_table(sequences.size() * static_cast<std::size_t>(max_blocks), -1);
  std::vector<std::uint16_t> rows;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TestSequence& s = sequences[i];
    for (std::int32_t j = 0; j < s.context; ++j) {
      std::int32_t& block =
          block_table[i * static_cast<std::size_t>(max_blocks) + static_cast<std::size_t>(j / size)];
      if (block < 0) {
        block = free.back();
        free.pop_back();
      }
      for (std::int64_t h = 0; h < config.kv_heads; ++h)
        for (std::int64_t d = 0; d < dims; ++d) {
          const auto from = static_cast<std::size_t>((j * config.kv_heads + h) * dims + d);
          const std::int64_t to =
              block * key.block_stride + h * key.head_stride + (j % size) * key.token_stride + d;
          slots[static_cast<std::size_t>(place.key_at + to)] = bits_of(s.keys[from], setting.dtype);
          slots[static_cast<std::size_t>(place.value_at + to)] =
              j < poisoned_below ? nan : bits_of(s.values[from], setting.dtype);
        }
    }
    for (auto q = s.q.end() - std::int64_t{s.rows} * config.heads * dims; q != s.q.end(); ++q)
      rows.push_back(bits_of(*q, setting.dtype));
    query_start.push_back(query_start.back() + s.rows);
    context_length.push_back(s.context);
    most_rows = std::max(most_rows, s.rows * (config.heads / config.kv_heads));
  }
  while (1 << block_shift < size) ++block_shift;
  cache = DeviceBuffer<std::uint16_t>(slots);
  query = DeviceBuffer<std::uint16_t>(rows);
  table = DeviceBuffer<std::int32_t>(block_table);
  const AttentionFactors all = config.kind == AttentionKind::softmax
                                   ? softmax_factors(config)
                                   : attention_factors(config, setting.params, setting.dtype);
  form = all.form;
  factors = DeviceBuffer<HeadFactors>(all.heads);
  key.data = cache.data() + place.key_at;
  value.data = cache.data() + place.value_at;
}

/// A launch of decode with its buffers, outputs poisoned.
struct DecodeLaunch {
  DecodeLaunch(const Setting& setting, const std::vector<TestSequence>& sequences,
               std::int32_t poisoned_below = 0)
      : step(setting, sequences, poisoned_below), out(step.query.size()) {
    const AttentionConfig& config = setting.config;
    plan.build(step.query_start, step.context_length, config.kv_heads);
    units = DeviceBuffer<DecodeUnit>(plan.units);
    partial = DeviceBuffer<float>(static_cast<std::size_t>(plan.slots * kDecodeRows * config.head_dim));
    arrived = DeviceBuffer<std::uint32_t>(static_cast<std::size_t>(2 * plan.slots));
    out.fill_bytes(0xFF);
    partial.fill_bytes(0xFF);
    arrived.fill_bytes(0);
    value_count.fill_bytes(0);
    const std::int64_t columns = std::int64_t{config.heads} * config.head_dim;
    args = {.query = step.query.data(),
            .out = out.data(),
            .query_stride = columns,
            .out_stride = columns,
            .block_table = step.table.data(),
            .factors = step.factors.data(),
            .units = units.data(),
            .partial = partial.data(),
            .arrived = arrived.data(),
            .slots = plan.slots,
            .unit_count = static_cast<std::int32_t>(plan.units.size()),
            .max_blocks = step.max_blocks,
            .block_shift = step.block_shift,
            .group = config.heads / config.kv_heads,
            .most_rows = step.most_rows,
            .form = step.form,
            .skip_values = setting.skip_values};
    set_cache(args, step.key, step.value, setting.dtype, step.blocks, setting.block_size, config.kv_heads,
              config.head_dim);
  }

  DeviceStep step;
  DecodePlan plan;
  DeviceBuffer<DecodeUnit> units;
  DeviceBuffer<std::uint16_t> out;
  DeviceBuffer<float> partial;
  DeviceBuffer<std::uint32_t> arrived;
  DeviceBuffer<std::uint64_t> value_count = DeviceBuffer<std::uint64_t>(1);  // used where args point to it
  DecodeArgs args;
};

/// Keys that units of a step see: those of its sequences with rows, once a KV head.
inline std::uint64_t seen_keys(const Setting& setting, const std::vector<TestSequence>& sequences) {
  std::uint64_t keys = 0;
  for (const TestSequence& s : sequences)
    if (s.rows > 0)
      keys += static_cast<std::uint64_t>(s.context) * static_cast<std::uint64_t>(setting.config.kv_heads);
  return keys;
}

/// And of prefill.
struct PrefillLaunch {
  PrefillLaunch(const Setting& setting, const std::vector<TestSequence>& sequences)
      : step(setting, sequences), out(step.query.size()) {
    const AttentionConfig& config = setting.config;
    plan.build(step.query_start, step.context_length, config.kv_heads, config.heads / config.kv_heads);
    units = DeviceBuffer<PrefillUnit>(plan.units);
    span_sums =
        DeviceBuffer<float>(static_cast<std::size_t>(std::int64_t{256} * kPrefillRows * config.head_dim));
    out.fill_bytes(0xFF);
    span_sums.fill_bytes(0xFF);
    taken = DeviceBuffer<std::uint32_t>(2);
    taken.fill_bytes(0);
    const std::int64_t columns = std::int64_t{config.heads} * config.head_dim;
    args = {.out = out.data(),
            .out_stride = columns,
            .block_table = step.table.data(),
            .factors = step.factors.data(),
            .units = units.data(),
            .taken = taken.data(),
            .span_sums = span_sums.data(),
            .unit_count = static_cast<std::int32_t>(plan.units.size()),
            .max_blocks = step.max_blocks,
            .block_shift = step.block_shift,
            .form = step.form};
    set_tensors(args,
                {.dtype = setting.dtype,
                 .query = step.query.data(),
                 .query_stride = columns,
                 .rows = step.query_start.back(),
                 .heads = config.heads,
                 .kv_heads = config.kv_heads,
                 .head_dim = config.head_dim,
                 .blocks = step.blocks,
                 .block_size = setting.block_size},
                step.key, step.value);
  }

  DeviceStep step;
  PrefillPlan plan;
  DeviceBuffer<PrefillUnit> units;
  DeviceBuffer<std::uint16_t> out;
  DeviceBuffer<float> span_sums;
  DeviceBuffer<std::uint32_t> taken;
  PrefillArgs args;
};

/// Output rows of all sequences as the element type's bits.
inline std::vector<std::uint16_t> decode(const Setting& setting, const std::vector<TestSequence>& sequences,
                                         std::int32_t poisoned_below = 0) {
  const AttentionConfig& config = setting.config;
  DecodeLaunch launch(setting, sequences, poisoned_below);
  // The second launch begins while the first one ends, on the same partial sums; it counts, too.
  DeviceBuffer<std::uint16_t> earlier(launch.out.size());
  earlier.fill_bytes(0xFF);
  DecodeArgs before = launch.args;
  before.out = earlier.data();
  run_decode(before, setting.dtype, config.head_dim, config.pool_size, nullptr);
  launch.args.value_count = launch.value_count.data();
  run_decode(launch.args, setting.dtype, config.head_dim, config.pool_size, nullptr);
  std::vector<std::uint16_t> first = launch.out.download();
  EXPECT_EQ(earlier.download(), first);
  for (const std::uint32_t count : launch.arrived.download()) EXPECT_EQ(count, 0u);
  EXPECT_EQ(launch.value_count.download()[0] >> 32, seen_keys(setting, sequences));
  return first;
}

inline std::vector<std::uint16_t> prefill(const Setting& setting,
                                          const std::vector<TestSequence>& sequences) {
  const PrefillLaunch launch(setting, sequences);
  const AttentionConfig& config = setting.config;
  // The second launch finds the counters as the first left them.
  for (int i = 0; i < 2; ++i) {
    if (config.kind == AttentionKind::softmax)
      run_softmax_prefill(launch.args, setting.dtype, config.head_dim, nullptr);
    else
      run_prefill(launch.args, setting.dtype, config.head_dim, config.pool_size, nullptr);
    for (const std::uint32_t count : launch.taken.download()) EXPECT_EQ(count, 0u);
  }
  return launch.out.download();
}

inline void expect_close(const Setting& setting, const std::vector<TestSequence>& sequences,
                         const std::vector<std::uint16_t>& got) {
  std::size_t at = 0;
  for (const TestSequence& s : sequences) {
    const auto wanted =
        static_cast<std::size_t>(std::int64_t{s.rows} * setting.config.heads * setting.config.head_dim);
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

inline Setting random_setting(Random& random) {
  Setting setting;
  const int group = pick_of<int>(random, {1, 2, 3, 4, 7, 8, 16});
  const int kv_heads = pick(random, 1, 3);
  setting.config = {.heads = group * kv_heads,
                    .kv_heads = kv_heads,
                    .head_dim = pick_of<int>(random, {64, 128}),
                    .pool_size = pick_of<int>(random, {1, 2, 3, 3, 5}),
                    .pool_relu = pick(random, 0, 3) > 0};
  const auto dims = static_cast<float>(setting.config.head_dim);
  setting.config.scale = 1 / pick_of<float>(random, {dims, std::sqrt(dims), 1.3F * std::sqrt(dims)});
  std::uniform_real_distribution<float> around(-0.2F, 1.2F);
  for (int h = 0; h < setting.config.heads; ++h) {
    setting.params.sigma.push_back(around(random) * (pick(random, 0, 5) == 0 ? 10.F : 1.F));
    setting.params.slope.push_back(pick(random, 0, 2) == 0 ? 0.5F + around(random) : 1);
    setting.params.bias.push_back(pick(random, 0, 2) == 0 ? 0.1F * around(random) : 0);
    setting.params.gain.push_back(0.5F + around(random));
  }
  if (pick(random, 0, 1) == 0) setting.params.slope.clear(), setting.params.bias.clear();
  setting.dtype = pick_of<DType>(random, {DType::bf16, DType::f16});
  setting.layout = pick_of(random, kLayouts);
  setting.block_size = pick_of<std::int32_t>(random, {8, 16, 32, 64, 128});
  setting.skip_values = pick(random, 0, 1) == 0;
  setting.placement = static_cast<unsigned>(pick(random, 1, 1000));
  return setting;
}

/// Query heads a KV head, and factors for as many heads.
inline void set_group(Setting& setting, int group) {
  const auto heads = static_cast<std::size_t>(std::int64_t{group} * setting.config.kv_heads);
  setting.config.heads = static_cast<std::int32_t>(heads);
  for (auto* const values :
       {&setting.params.sigma, &setting.params.slope, &setting.params.bias, &setting.params.gain})
    if (!values->empty()) values->resize(heads, 0.5F);
}

inline std::int32_t random_context(Random& random) {
  const int border =
      pick_of<int>(random, {1, 8, 16, 32, 64, 128, 240, 256, 512, 600, 1024, 2048, 4096, 4352});
  return std::max(1, border + pick(random, -2, 2));
}

}  // namespace asynct::cuda
