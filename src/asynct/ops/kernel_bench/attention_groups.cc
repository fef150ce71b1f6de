#include "asynct/ops/kernel_bench/attention_groups.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "asynct/base/error.h"
#include "asynct/base/strings.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/ops/kernel_bench/attention_runner.h"
#include "asynct/ops/kernel_bench/kernel_bench.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"

namespace asynct::kernel_bench {
namespace {

constexpr std::int32_t kPage = 16;
constexpr std::int32_t kPool = 3;
/// With independent normal scores 0.44 of all weights are above 0 for the first, 0.30 for the second, which
/// is the share of a trained model.
constexpr float kSigma = 0.5F;
constexpr float kTrainedSigma = 1.35F;

using Bits = cuda::DeviceBuffer<std::uint16_t>;

/// The sequences of a step, without their tensors.
struct Batch {
  std::int32_t heads = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 128;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> contexts;

  std::int32_t pages() const {
    return std::accumulate(contexts.begin(), contexts.end(), 0,
                           [](std::int32_t sum, std::int32_t n) { return sum + pages_of(n); });
  }
  std::int32_t most_pages() const { return pages_of(*std::max_element(contexts.begin(), contexts.end())); }
  static std::int32_t pages_of(std::int32_t keys) { return (keys + kPage - 1) / kPage; }
};

struct InputSet {
  Bits query, key, value, out;
};

/// A paged cache with shuffled pages and several sets of tensors.
struct Inputs {
  Inputs(const Batch& batch, int sets);

  std::vector<std::int32_t> table;  // [sequences, most pages]
  cuda::DeviceBuffer<std::int32_t> device_table;
  std::vector<InputSet> sets;

  AttentionTensors tensors(int set) const {
    const InputSet& s = sets[static_cast<std::size_t>(set)];
    return {s.query.data(), s.key.data(), s.value.data(), device_table.data(), s.out.data()};
  }
};

std::vector<std::int32_t> shuffled_table(const Batch& batch) {
  std::vector<std::int32_t> free(static_cast<std::size_t>(batch.pages()));
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), std::mt19937(1));
  std::vector<std::int32_t> table(batch.contexts.size() * static_cast<std::size_t>(batch.most_pages()));
  auto next = free.begin();
  for (std::size_t i = 0; i < batch.contexts.size(); ++i) {
    const auto row = table.begin() + static_cast<std::ptrdiff_t>(i) * batch.most_pages();
    const std::int32_t pages = Batch::pages_of(batch.contexts[i]);
    std::copy(next, next + pages, row);
    next += pages;
  }
  return table;
}

Inputs::Inputs(const Batch& batch, int count) : table(shuffled_table(batch)), device_table(table) {
  const std::int32_t rows = std::accumulate(batch.rows.begin(), batch.rows.end(), 0);
  const auto queries =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(batch.heads * batch.head_dim);
  const auto keys = static_cast<std::size_t>(batch.pages()) *
                    static_cast<std::size_t>(kPage * batch.kv_heads * batch.head_dim);
  for (int i = 0; i < count; ++i) {
    sets.push_back({Bits(queries), Bits(keys), Bits(keys), Bits(queries)});
    const auto seed = static_cast<std::uint32_t>(3 * i);
    fill_normal(sets.back().query.data(), queries, seed, nullptr);
    fill_normal(sets.back().key.data(), keys, seed + 1, nullptr);
    fill_normal(sets.back().value.data(), keys, seed + 2, nullptr);
  }
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/// The step of sequences [begin, end) of the batch; rows count from its first.
AttentionStep step_of(const Batch& batch, float sigma, std::size_t begin, std::size_t end) {
  AttentionStep step;
  step.config = {.heads = batch.heads,
                 .kv_heads = batch.kv_heads,
                 .head_dim = batch.head_dim,
                 .scale = 1 / static_cast<float>(batch.head_dim),
                 .pool_size = kPool};
  step.params.sigma.assign(static_cast<std::size_t>(batch.heads), sigma);
  step.block_size = kPage;
  step.blocks = batch.pages();
  step.max_blocks = batch.most_pages();
  step.query_start = {0};
  for (std::size_t i = begin; i < end; ++i) {
    step.query_start.push_back(step.query_start.back() + batch.rows[i]);
    step.context_length.push_back(batch.contexts[i]);
  }
  const std::int64_t token = std::int64_t{batch.kv_heads} * batch.head_dim;
  step.layout = {.block_stride = kPage * token, .head_stride = batch.head_dim, .token_stride = token};
  return step;
}

AttentionStep step_of(const Batch& batch, float sigma) {
  return step_of(batch, sigma, 0, batch.contexts.size());
}

/// Gives exactly the share `density` of each sequence's and KV head's keys weight, for all query heads.
void set_density(const Batch& batch, const Inputs& inputs, double density) {
  const std::int32_t context = batch.contexts.front();  // all are equal
  const auto sequences = static_cast<std::int64_t>(batch.contexts.size());
  const std::vector<std::uint8_t> needed = needed_keys(sequences * batch.kv_heads, context, density, 1);
  std::vector<std::uint8_t> slots(static_cast<std::size_t>(batch.pages()) *
                                  static_cast<std::size_t>(kPage * batch.kv_heads));
  for (std::int64_t i = 0; i < sequences; ++i)
    for (std::int32_t j = 0; j < context; ++j) {
      const std::int64_t page = inputs.table[static_cast<std::size_t>(i * batch.most_pages() + j / kPage)];
      for (std::int32_t h = 0; h < batch.kv_heads; ++h)
        slots[static_cast<std::size_t>((page * kPage + j % kPage) * batch.kv_heads + h)] =
            needed[static_cast<std::size_t>((i * batch.kv_heads + h) * context + j)];
    }
  for (const InputSet& set : inputs.sets) {
    set_signs(set.key.data(), batch.head_dim, slots);
    const std::vector<std::uint8_t> positive(set.query.size() / static_cast<std::size_t>(batch.head_dim), 1);
    set_signs(set.query.data(), batch.head_dim, positive);
  }
}

/// Readers of all keys and values: what such an amount takes at the least.
void add_readers(Group& group, const std::shared_ptr<Inputs>& inputs) {
  const InputSet& first = inputs->sets.front();
  const double bytes = 2.0 * 2 * static_cast<double>(first.key.size());
  for (int setting = 0; setting < kReadSettings; ++setting)
    group.candidates.push_back({.variant = "read K and V",
                                .floor = {.bytes = bytes},
                                .launch = [inputs, setting](int set, cudaStream_t stream) {
                                  const InputSet& s = inputs->sets[static_cast<std::size_t>(set)];
                                  run_read(setting, {s.key.data(), 2 * s.key.size()},
                                           {s.value.data(), 2 * s.value.size()}, nullptr, stream);
                                }});
}

double cache_bytes_of(const Batch& batch) {
  return 4.0 * batch.pages() * kPage * batch.kv_heads * batch.head_dim;
}

std::string decode_variant(double density, bool skip) {
  return cat("density ", density, skip ? ", needed values" : ", all values");
}

std::string plain_decode_variant(double density) { return cat("density ", density, ", plain path"); }

void add_plain(Group& group, const std::shared_ptr<Inputs>& inputs, const AttentionStep& step,
               const std::string& variant, const Floor& floor) {
  const auto runner = std::make_shared<PlainRunner>(step);
  group.candidates.push_back(
      {.variant = variant, .floor = floor, .launch = [inputs, runner](int set, cudaStream_t stream) {
         runner->run(inputs->tensors(set), stream);
       }});
}

Group decode_group(const DecodeShape& shape, double density, double cache_bytes) {
  const Batch batch = {
      .heads = shape.heads,
      .kv_heads = shape.kv_heads,
      .head_dim = shape.head_dim,
      .rows = std::vector<std::int32_t>(static_cast<std::size_t>(shape.batch), 1),
      .contexts = std::vector<std::int32_t>(static_cast<std::size_t>(shape.batch), shape.context)};
  Group group = {
      .kernel = "decode", .shape = shape.text(), .sets = rotating_sets(cache_bytes_of(batch), cache_bytes)};
  const auto inputs = std::make_shared<Inputs>(batch, group.sets);
  set_density(batch, *inputs, density);
  for (const bool skip : {false, true}) {
    AttentionStep step = step_of(batch, kSigma);
    step.skip_values = skip;
    const auto runner = std::make_shared<DecodeRunner>(step);
    group.candidates.push_back({.variant = decode_variant(density, skip),
                                .floor = shape.floor(skip ? density : 1),
                                .launch = [inputs, runner](int set, cudaStream_t stream) {
                                  runner->run(inputs->tensors(set), stream);
                                }});
  }
  add_plain(group, inputs, step_of(batch, kSigma), plain_decode_variant(density), shape.floor(1));
  add_readers(group, inputs);
  return group;
}

constexpr const char* kRandomVariant = "random, A > 0: 0.44";
constexpr const char* kTrainedVariant = "random, A > 0: 0.30";
constexpr const char* kPlainVariant = "random, A > 0: 0.44, plain path";
constexpr const char* kSoftmaxVariant = "softmax twin";

Group prefill_group(const PrefillShape& shape, double cache_bytes) {
  const auto count = static_cast<std::size_t>(shape.batch);
  const Batch batch = {.heads = shape.heads,
                       .kv_heads = shape.kv_heads,
                       .head_dim = shape.head_dim,
                       .rows = std::vector<std::int32_t>(count, shape.context),
                       .contexts = std::vector<std::int32_t>(count, shape.context)};
  Group group = {
      .kernel = "prefill", .shape = shape.text(), .sets = rotating_sets(shape.floor().bytes, cache_bytes)};
  const auto inputs = std::make_shared<Inputs>(batch, group.sets);
  for (const auto& [variant, sigma] :
       {std::pair(kRandomVariant, kSigma), std::pair(kTrainedVariant, kTrainedSigma),
        std::pair(kSoftmaxVariant, 0.F)}) {
    AttentionStep step = step_of(batch, sigma);
    if (variant == kSoftmaxVariant) step.config.kind = AttentionKind::softmax;
    const auto runner = std::make_shared<PrefillRunner>(step);
    group.candidates.push_back({.variant = variant,
                                .floor = shape.floor(),
                                .launch = [inputs, runner](int set, cudaStream_t stream) {
                                  runner->run(inputs->tensors(set), stream);
                                }});
  }
  add_plain(group, inputs, step_of(batch, kSigma), kPlainVariant, shape.floor());
  return group;
}

/// A second stream that starts after what the first has and ends before what it gets.
class SideStream {
 public:
  SideStream() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda::check(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), "cudaEventCreate");
    cuda::check(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~SideStream() {
    cudaEventDestroy(join_);
    cudaEventDestroy(fork_);
    cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t fork(cudaStream_t from) const {
    cuda::check(cudaEventRecord(fork_, from), "cudaEventRecord");
    cuda::check(cudaStreamWaitEvent(stream_, fork_), "cudaStreamWaitEvent");
    return stream_;
  }
  void join(cudaStream_t to) const {
    cuda::check(cudaEventRecord(join_, stream_), "cudaEventRecord");
    cuda::check(cudaStreamWaitEvent(to, join_), "cudaStreamWaitEvent");
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
};

/// The step's two parts: decodes first in rows and table, then the chunks.
struct MixedRunner {
  MixedRunner(const Batch& batch, std::int32_t decodes)
      : decode(step_of(batch, kSigma, 0, static_cast<std::size_t>(decodes))),
        prefill(step_of(batch, kSigma, static_cast<std::size_t>(decodes), batch.contexts.size())),
        row_elements(std::int64_t{decodes} * batch.heads * batch.head_dim),
        table_entries(std::int64_t{decodes} * batch.most_pages()) {}

  AttentionTensors prefill_tensors(const AttentionTensors& tensors) const {
    AttentionTensors later = tensors;
    later.query = static_cast<const std::uint16_t*>(tensors.query) + row_elements;
    later.out = static_cast<std::uint16_t*>(tensors.out) + row_elements;
    later.block_table = tensors.block_table + table_entries;
    return later;
  }
  void run_prefill(const AttentionTensors& tensors, cudaStream_t stream) const {
    prefill.run(prefill_tensors(tensors), stream);
  }

  DecodeRunner decode;
  PrefillRunner prefill;
  std::int64_t row_elements;
  std::int64_t table_entries;
  SideStream side;
};

const std::vector<std::string> kMixedVariants = {"decode, then prefill", "two streams", "prefill part",
                                                 "decode part", "one launch"};

Group mixed_group(const MixedShape& shape, double cache_bytes) {
  Batch batch = {.heads = shape.heads, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim};
  batch.rows.assign(static_cast<std::size_t>(shape.decodes), 1);
  batch.rows.insert(batch.rows.end(), static_cast<std::size_t>(shape.prefills), shape.rows);
  batch.contexts.assign(static_cast<std::size_t>(shape.decodes), shape.decode_context);
  batch.contexts.insert(batch.contexts.end(), static_cast<std::size_t>(shape.prefills), shape.context);
  Group group = {
      .kernel = "mixed", .shape = shape.text(), .sets = rotating_sets(cache_bytes_of(batch), cache_bytes)};
  const auto inputs = std::make_shared<Inputs>(batch, group.sets);
  const auto runner = std::make_shared<MixedRunner>(batch, shape.decodes);
  const auto add = [&](std::size_t variant, const Floor& floor, auto launch) {
    group.candidates.push_back({.variant = kMixedVariants[variant],
                                .floor = floor,
                                .launch = [inputs, runner, launch](int set, cudaStream_t stream) {
                                  launch(*runner, inputs->tensors(set), stream);
                                }});
  };
  using Tensors = AttentionTensors;
  add(0, shape.floor(), [](const MixedRunner& parts, const Tensors& tensors, cudaStream_t stream) {
    parts.decode.run(tensors, stream);
    parts.run_prefill(tensors, stream);
  });
  add(1, shape.floor(), [](const MixedRunner& parts, const Tensors& tensors, cudaStream_t stream) {
    const cudaStream_t side = parts.side.fork(stream);
    parts.run_prefill(tensors, stream);
    parts.decode.run(tensors, side);
    parts.side.join(stream);
  });
  add(2, shape.prefill_floor(), [](const MixedRunner& parts, const Tensors& tensors, cudaStream_t stream) {
    parts.run_prefill(tensors, stream);
  });
  add(3, shape.decode_floor(), [](const MixedRunner& parts, const Tensors& tensors, cudaStream_t stream) {
    parts.decode.run(tensors, stream);
  });
  add(4, shape.floor(), [](const MixedRunner& parts, const Tensors& tensors, cudaStream_t stream) {
    run_together(parts.decode, tensors, parts.prefill, parts.prefill_tensors(tensors), stream);
  });
  add_readers(group, inputs);
  return group;
}

}  // namespace

std::vector<LazyGroup> decode_groups(const KernelBenchOptions& options, double cache_bytes) {
  std::vector<LazyGroup> groups;
  for (const DecodeShape& shape : options.decode)
    for (const double density : options.densities)
      groups.push_back({.kernel = "decode",
                        .shape = shape.text(),
                        .variants = {decode_variant(density, false), decode_variant(density, true),
                                     plain_decode_variant(density)},
                        .make = [=] { return decode_group(shape, density, cache_bytes); }});
  return groups;
}

std::vector<LazyGroup> prefill_groups(const KernelBenchOptions& options, double cache_bytes) {
  std::vector<LazyGroup> groups;
  for (const PrefillShape& shape : options.prefill)
    groups.push_back({.kernel = "prefill",
                      .shape = shape.text(),
                      .variants = {kRandomVariant, kTrainedVariant, kSoftmaxVariant, kPlainVariant},
                      .make = [=] { return prefill_group(shape, cache_bytes); }});
  return groups;
}

std::vector<LazyGroup> mixed_groups(const KernelBenchOptions& options, double cache_bytes) {
  std::vector<LazyGroup> groups;
  for (const MixedShape& shape : options.mixed)
    groups.push_back({.kernel = "mixed", .shape = shape.text(), .variants = kMixedVariants, .make = [=] {
                        return mixed_group(shape, cache_bytes);
                      }});
  return groups;
}

}  // namespace asynct::kernel_bench
