#include "asynct/model/memory_plan.h"

#include <algorithm>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/model/decoder.h"

namespace asynct {
namespace {

using feed_forward::NeuronRows;
using linear::PackedMatrix;

constexpr std::int64_t kLeastBatch = 16;
constexpr std::int64_t kLeastContext = 2048;  // tokens that a cache should hold before a batch is large
constexpr std::int64_t kMostDefaultKv = std::int64_t{4} << 30;

class PartTable {
 public:
  void matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, DType dtype) {
    add(name, outputs * inputs, PackedMatrix::outline(dtype, outputs, inputs).bytes());
  }
  void matrix(const std::string& name, const TensorView& view) {
    matrix(name, view.shape[0], view.shape[1], view.dtype);
  }
  void neurons(const std::string& name, std::int64_t neurons, std::int64_t width, DType dtype) {
    add(name, neurons * width, NeuronRows::outline(dtype, neurons, width).bytes());
  }
  /// Scalars are kept broadcast.
  void norm(const NormParams& norm, std::int64_t size) {
    const auto parameters = norm.alpha.size() + norm.gamma.size() + norm.beta.size();
    const int vectors = 1 + (norm.alpha.empty() ? 0 : 1) + (norm.beta.empty() ? 0 : 1);
    add("norms and heads", static_cast<std::int64_t>(parameters),
        static_cast<std::size_t>(vectors * size) * sizeof(float));
  }
  void add(const std::string& name, std::int64_t parameters, std::size_t bytes, bool mapped = false) {
    auto part = std::find_if(parts_.begin(), parts_.end(), [&](const auto& p) { return p.name == name; });
    if (part == parts_.end()) part = parts_.insert(parts_.end(), MemoryPart{name, 0, 0, mapped});
    part->parameters += parameters;
    part->bytes += bytes;
  }
  std::vector<MemoryPart> take() { return std::move(parts_); }

 private:
  std::vector<MemoryPart> parts_;
};

std::int64_t count(const AttentionHeadParams& heads, const ModelConfig& config) {
  const std::size_t sigma = config.attention_form == AttentionForm::asynci ? heads.sigma.size() : 0;
  return static_cast<std::int64_t>(sigma + heads.slope.size() + heads.bias.size() + heads.gain.size());
}

void add_feed_forward(PartTable& table, const ModelConfig& config, const FeedForwardWeights& mlp) {
  if (config.activation == Activation::relu) {
    table.matrix("gate", mlp.gate);
    table.neurons("up", config.intermediate_size, config.hidden_size, mlp.up.dtype);
    table.neurons("down", config.intermediate_size, config.hidden_size, mlp.down.dtype);
  } else {
    table.matrix("gate and up", std::int64_t{2} * config.intermediate_size, config.hidden_size,
                 mlp.gate.dtype);
    table.matrix("down", mlp.down);
  }
}

void add_layer(PartTable& table, const ModelConfig& config, const LayerWeights& layer) {
  const std::int64_t d = config.hidden_size;
  table.matrix("qkv projection", (std::int64_t{config.heads} + 2 * config.kv_heads) * config.head_dim, d,
               layer.q_proj.dtype);
  table.matrix("output projection", layer.o_proj);
  add_feed_forward(table, config, layer.mlp);
  table.norm(layer.input_norm, d);
  table.norm(layer.mlp_norm, d);
  if (layer.post_attention_norm) table.norm(*layer.post_attention_norm, d);
  for (const auto& norm : {layer.q_norm, layer.k_norm})
    if (norm) table.norm(*norm, config.head_dim);
  const std::int64_t parameters = count(layer.heads, config);
  table.add("norms and heads", parameters, static_cast<std::size_t>(parameters) * sizeof(float));
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t mib(std::int64_t bytes) { return divide_up(bytes, 1 << 20); }

/// Sizes of a run as functions of its rows and its cache.
class Sizes {
 public:
  Sizes(const OpContext& context, const ModelConfig& config, const ModelWeights& weights, const RunSize& size)
      : context_(context),
        config_(config),
        weights_(weights),
        size_(size),
        kv_(kv_shape(config, context.precision(), size.block_size)),
        weight_parts_(asynct::weight_parts(config, weights)),
        weight_bytes_(held_bytes(weight_parts_)) {}

  const KvShape& kv() const { return kv_; }
  std::size_t weight_bytes() const { return weight_bytes_; }

  /// Sets the rows that the functions below are about.
  void set_rows(std::int64_t rows) {
    rows_ = rows;
    row_scratch_ = Head::scratch_size(context_, weights_.head, rows);
    const auto cover = [&](std::int64_t outputs, const TensorView& view) {
      row_scratch_.cover(
          Linear::scratch_size(context_, PackedMatrix::outline(view.dtype, outputs, view.shape[1]), rows));
    };
    for (const LayerWeights& layer : weights_.layers) {
      cover(layer.q_proj.shape[0] + 2 * layer.k_proj.shape[0], layer.q_proj);
      cover(layer.o_proj.shape[0], layer.o_proj);
      row_scratch_.cover(FeedForward::scratch_size(context_, layer.mlp, config_.activation, rows));
    }
  }

  std::int64_t max_context(std::int64_t blocks) const {
    return std::min<std::int64_t>(config_.max_positions, blocks * size_.block_size);
  }

  ScratchSize scratch(std::int64_t blocks) const {
    ScratchSize scratch = row_scratch_;
    scratch.cover(Attention::scratch_size(context_, config_.attention, max_context(blocks)));
    return scratch;
  }

  std::vector<MemoryPart> run_parts(std::int64_t blocks) const {
    const ScratchSize scratch = this->scratch(blocks);
    const auto workers = static_cast<std::size_t>(context_.pool().size());
    return {{"RoPE table", 0, Rope::table_bytes(config_.head_dim, max_context(blocks))},
            {"activation buffers", 0, Decoder::buffer_bytes(config_, rows_)},
            {"scratch", 0, workers * scratch.worker + scratch.shared},
            {"step tables", 0, table_bytes(blocks)},
            {"KV cache", 0, static_cast<std::size_t>(blocks) * kv_.block_bytes()}};
  }

  /// Bytes of everything that does not stay in the file.
  std::int64_t needed(std::int64_t blocks) const {
    return static_cast<std::int64_t>(weight_bytes_ + held_bytes(run_parts(blocks)));
  }

  MemoryPlan plan(std::int64_t blocks) const {
    MemoryPlan plan{.batch_tokens = rows_,
                    .blocks = static_cast<std::int32_t>(blocks),
                    .cached_tokens = blocks * size_.block_size,
                    .max_context = max_context(blocks),
                    .scratch = scratch(blocks),
                    .parts = weight_parts_};
    for (MemoryPart& part : run_parts(blocks)) plan.parts.push_back(std::move(part));
    return plan;
  }

 private:
  /// Arrays of a step batch, of its tail, and of their attention plans; the pool's counts. Bounds.
  std::size_t table_bytes(std::int64_t blocks) const {
    constexpr std::int64_t kRowBytes = 48;   // tokens, positions, slots, wanted rows; of batch and tail
    constexpr std::int64_t kUnitBytes = 96;  // a unit and a reduction, with room from growing
    constexpr std::int64_t kBlockBytes = 8;
    const std::int64_t sequences = std::min<std::int64_t>(size_.max_sequences, rows_);
    const std::int64_t tail_runs = divide_up(rows_, 2) + sequences;
    const std::int64_t pages = divide_up(max_context(blocks), size_.block_size);
    return static_cast<std::size_t>(rows_ * kRowBytes + (sequences + tail_runs) * pages * 4 +
                                    2 * config_.kv_heads * (sequences + tail_runs) * kUnitBytes +
                                    blocks * kBlockBytes);
  }

  const OpContext& context_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const RunSize& size_;
  KvShape kv_;
  std::vector<MemoryPart> weight_parts_;
  std::size_t weight_bytes_;
  std::int64_t rows_ = 0;
  ScratchSize row_scratch_;
};

/// The most blocks, at most `most`, that need no more than `bytes`; 0 when one is too many.
std::int64_t blocks_within(const Sizes& sizes, std::int64_t bytes, std::int64_t most) {
  std::int64_t fits = 0;
  std::int64_t too_many = most + 1;
  while (fits + 1 < too_many) {
    const std::int64_t middle = fits + (too_many - fits) / 2;
    (sizes.needed(middle) <= bytes ? fits : too_many) = middle;
  }
  return fits;
}

std::int64_t blocks_asked(const KvShape& kv, std::int64_t bytes) {
  const std::int64_t blocks = bytes / static_cast<std::int64_t>(kv.block_bytes());
  if (blocks < 1)
    fail("KV cache: ", bytes, " bytes hold no block of ", kv.block_bytes(), " bytes (", kv.block_size,
         " tokens); give it more (--kv-memory)");
  return std::min<std::int64_t>(blocks, std::numeric_limits<std::int32_t>::max());
}

[[noreturn]] void refuse(const Sizes& sizes, std::int64_t blocks, std::int64_t rows,
                         const MemoryBudget& budget, std::int64_t usable) {
  const std::int64_t cache = blocks * static_cast<std::int64_t>(sizes.kv().block_bytes());
  const auto weights = static_cast<std::int64_t>(sizes.weight_bytes());
  const std::int64_t needed = sizes.needed(blocks);
  const std::int64_t most = blocks_within(sizes, usable, blocks);
  fail("not enough memory: ", mib(weights), " MiB of weights, ", mib(needed - weights - cache),
       " MiB to compute ", rows, " tokens a step, ", mib(cache), " MiB of KV cache and ", mib(kMemoryReserve),
       " MiB of reserve make ", mib(needed + kMemoryReserve), " MiB, but ", budget.bytes >> 20,
       " MiB are left (", budget.bound, "); ",
       most > 0 ? cat("--kv-memory ", most * static_cast<std::int64_t>(sizes.kv().block_bytes()) >> 10,
                      "K is the most that fits")
                : std::string("raise the limit or free memory"));
}

}  // namespace

std::vector<MemoryPart> weight_parts(const ModelConfig& config, const ModelWeights& weights) {
  PartTable table;
  table.add("embedding (mapped)", weights.embedding.shape.elements(), weights.embedding.bytes(), true);
  for (const LayerWeights& layer : weights.layers) add_layer(table, config, layer);
  table.norm(weights.final_norm, config.hidden_size);
  table.matrix("head", weights.head);
  return table.take();
}

std::size_t held_bytes(const std::vector<MemoryPart>& parts) {
  std::size_t bytes = 0;
  for (const MemoryPart& part : parts) bytes += part.mapped ? 0 : part.bytes;
  return bytes;
}

KvShape kv_shape(const ModelConfig& config, Precision precision, std::int32_t block_size) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .block_size = block_size,
          .dtype = precision == Precision::bf16 ? DType::bf16 : DType::f32};
}

std::size_t MemoryPlan::total() const {
  std::size_t bytes = 0;
  for (const MemoryPart& part : parts) bytes += part.bytes;
  return bytes;
}

MemoryPlan plan_memory(const OpContext& context, const ModelConfig& config, const ModelWeights& weights,
                       const RunSize& size, const MemoryBudget& budget) {
  Sizes sizes(context, config, weights, size);
  const std::int64_t usable = budget.bytes - kMemoryReserve;
  const std::int64_t asked = size.kv_bytes > 0 ? blocks_asked(sizes.kv(), size.kv_bytes) : 0;
  // More than every sequence at the model's full length is of no use.
  const std::int64_t useful = size.max_sequences * (divide_up(config.max_positions, size.block_size) + 1);
  const std::int64_t by_default =
      std::clamp<std::int64_t>(kMostDefaultKv / static_cast<std::int64_t>(sizes.kv().block_bytes()), 1,
                               std::min<std::int64_t>(useful, std::numeric_limits<std::int32_t>::max()));
  const std::int64_t least = std::min(
      divide_up(std::min<std::int64_t>(config.max_positions, kLeastContext), size.block_size), by_default);

  for (std::int64_t rows = size.batch_tokens;; rows = std::max(rows / 2, kLeastBatch)) {
    sizes.set_rows(rows);
    const bool last = rows <= kLeastBatch;
    if (asked > 0) {
      if (sizes.needed(asked) <= usable) return sizes.plan(asked);
      if (last) refuse(sizes, asked, rows, budget, usable);
      continue;
    }
    // Half of what is left, unless that is little.
    const std::int64_t smallest = sizes.needed(1);
    std::int64_t blocks = blocks_within(sizes, smallest + (usable - smallest) / 2, by_default);
    if (blocks < least) blocks = blocks_within(sizes, usable, least);
    if (blocks >= least || (last && blocks > 0)) return sizes.plan(blocks);
    if (last) refuse(sizes, 1, rows, budget, usable);
  }
}

}  // namespace asynct
