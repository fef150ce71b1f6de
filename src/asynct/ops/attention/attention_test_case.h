#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/reference.h"
#include "asynct/ops/testing/testing.h"

// Sequences with their keys and values in plain arrays, and the paged cache that a step sees, in any layout.
namespace asynct {

using Random = std::mt19937;

inline std::vector<Isa> isas() {
  std::vector<Isa> found = {Isa::scalar};
  if (cpu_features().avx2) found.push_back(Isa::avx2);
  if (cpu_features().avx512) found.push_back(Isa::avx512);
  return found;
}

inline int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}
template <class T>
T pick_of(Random& random, const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(pick(random, 0, static_cast<int>(choices.size()) - 1))];
}

inline std::vector<float> normals(Random& random, std::int64_t count, DType dtype, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = dtype == DType::bf16 ? round_to_bf16(normal(random)) : normal(random);
  return values;
}

struct TestSequence {
  std::int32_t context = 0;
  std::int32_t rows = 0;
  std::vector<float> q;       // [context, H * D]: of every position, the step takes the last `rows`
  std::vector<float> keys;    // [context, Hk * D]
  std::vector<float> values;  // [context, Hk * D]
};

inline TestSequence make_sequence(Random& random, const AttentionConfig& config, std::int32_t context,
                                  std::int32_t rows, DType dtype) {
  const std::int64_t kv = std::int64_t{context} * config.kv_heads * config.head_dim;
  return {context, rows, normals(random, std::int64_t{context} * config.heads * config.head_dim, DType::f32),
          normals(random, kv, dtype), normals(random, kv, dtype)};
}

/// The same keys and values, seen by a step of `rows` rows that ends at `context`.
inline TestSequence window(const TestSequence& whole, std::int32_t context, std::int32_t rows) {
  TestSequence part = whole;
  const auto cut = [&](std::vector<float>& values) {
    values.resize(values.size() / static_cast<std::size_t>(whole.context) *
                  static_cast<std::size_t>(context));
  };
  cut(part.q);
  cut(part.keys);
  cut(part.values);
  part.context = context;
  part.rows = rows;
  return part;
}

/// own: [blocks, H, D, block] and [blocks, H, block, D]; flash: [2, blocks, block, H, D]; packed: vLLM's
/// [blocks, H, block, 2 D]; reversed: D outermost, for which nothing is contiguous.
enum class Layout { own, flash, packed, reversed };

struct TestStep {
  AttentionConfig config;
  DType dtype = DType::f32;
  Layout layout = Layout::own;
  std::int32_t block_size = 16;
  unsigned seed = 1;  // of the block placement
};

/// Output rows of all sequences of one step, [T, H * D].
inline std::vector<float> run_step(OpContext& context, const TestStep& step,
                                   const AttentionHeadParams& params,
                                   const std::vector<TestSequence>& sequences) {
  const AttentionConfig& config = step.config;
  const std::int64_t dims = config.head_dim;
  const std::int64_t heads = config.kv_heads;
  const std::int64_t size = step.block_size;

  std::int32_t max_blocks = 1;
  std::int32_t used = 0;
  for (const TestSequence& s : sequences) {
    const auto blocks = static_cast<std::int32_t>((s.context + size - 1) / size);
    max_blocks = std::max(max_blocks, blocks);
    used += blocks;
  }
  const std::int64_t blocks = used + 3;
  std::vector<std::int32_t> free(static_cast<std::size_t>(blocks));
  for (std::size_t i = 0; i < free.size(); ++i) free[i] = static_cast<std::int32_t>(i);
  Random placement(step.seed);
  std::shuffle(free.begin(), free.end(), placement);

  const std::int64_t elements = blocks * heads * size * dims;
  const float poison = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> wide(static_cast<std::size_t>(2 * elements), poison);
  std::vector<Bf16> narrow(step.dtype == DType::bf16 ? wide.size() : 0, to_bf16(poison));
  KvLayer kv = {.block_size = step.block_size, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
  const auto pages = [&](std::int64_t first, std::int64_t block, std::int64_t head, std::int64_t token,
                         std::int64_t dim) -> KvPages {
    void* const data = step.dtype == DType::bf16 ? static_cast<void*>(narrow.data() + first)
                                                 : static_cast<void*>(wide.data() + first);
    return {data, step.dtype, block, head, token, dim};
  };
  switch (step.layout) {
    case Layout::own:
      kv.key = pages(0, heads * dims * size, dims * size, 1, size);
      kv.value = pages(elements, heads * dims * size, dims * size, dims, 1);
      break;
    case Layout::flash:
      kv.key = pages(0, size * heads * dims, dims, heads * dims, 1);
      kv.value = pages(elements, size * heads * dims, dims, heads * dims, 1);
      break;
    case Layout::packed:
      kv.key = pages(0, heads * size * 2 * dims, size * 2 * dims, 2 * dims, 1);
      kv.value = pages(dims, heads * size * 2 * dims, size * 2 * dims, 2 * dims, 1);
      break;
    case Layout::reversed:
      kv.key = pages(0, 1, blocks, blocks * heads, blocks * heads * size);
      kv.value = pages(elements, 1, blocks, blocks * heads, blocks * heads * size);
      break;
  }
  const auto write = [&](const KvPages& to, std::int64_t at, float value) {
    if (to.dtype == DType::bf16)
      static_cast<Bf16*>(to.data)[at] = to_bf16(value);
    else
      static_cast<float*>(to.data)[at] = value;
  };

  std::vector<std::int32_t> tokens, positions, query_start = {0}, lengths;
  std::vector<std::int32_t> table(sequences.size() * static_cast<std::size_t>(max_blocks), -1);
  std::vector<float> q;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TestSequence& s = sequences[i];
    for (std::int64_t j = 0; j < s.context; ++j) {
      std::int32_t& block =
          table[i * static_cast<std::size_t>(max_blocks) + static_cast<std::size_t>(j / size)];
      if (block < 0) {
        block = free.back();
        free.pop_back();
      }
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < dims; ++d) {
          const auto from = static_cast<std::size_t>((j * heads + h) * dims + d);
          write(kv.key, kv.key.offset(block, h, j % size, d), s.keys[from]);
          write(kv.value, kv.value.offset(block, h, j % size, d), s.values[from]);
        }
    }
    for (std::int32_t p = s.context - s.rows; p < s.context; ++p) {
      tokens.push_back(0);
      positions.push_back(p);
    }
    q.insert(q.end(), s.q.end() - std::int64_t{s.rows} * config.heads * dims, s.q.end());
    query_start.push_back(query_start.back() + s.rows);
    lengths.push_back(s.context);
  }
  const std::vector<std::int64_t> slots(tokens.size(), -1);
  const StepBatch batch = {.tokens = tokens,
                           .positions = positions,
                           .query_start = query_start,
                           .context_length = lengths,
                           .block_table = table,
                           .max_blocks = max_blocks,
                           .slot_mapping = slots};
  std::vector<float> out(q.size(), poison);
  const auto rows = static_cast<std::int64_t>(tokens.size());
  AttentionPlan plan;
  plan.build(config, batch, context.pool().size());
  Attention(config, params)
      .run(context, plan, batch, kv, ConstMatrix(q.data(), rows, config.heads * dims),
           Matrix(out.data(), rows, config.heads * dims));
  return out;
}

inline std::vector<double> reference_step(const TestStep& step, const AttentionHeadParams& params,
                                          const std::vector<TestSequence>& sequences) {
  std::vector<double> all;
  for (const TestSequence& s : sequences) {
    const auto wanted =
        static_cast<std::size_t>(std::int64_t{s.rows} * step.config.heads * step.config.head_dim);
    const std::span<const float> q(s.q.data() + s.q.size() - wanted, wanted);
    const std::vector<double> rows = reference_attention(step.config, params, q, s.keys, s.values);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

inline double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  return testing::relative_error({got.data(), 1, std::ssize(got)}, want);
}

}  // namespace asynct
