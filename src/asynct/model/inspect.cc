#include "asynct/model/inspect.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "asynct/base/error.h"

namespace asynct {
namespace {

std::size_t round_up(std::int64_t value, std::int64_t unit) {
  return static_cast<std::size_t>((value + unit - 1) / unit * unit);
}

class MemoryTable {
 public:
  /// A Linear: panels of 16 outputs, inputs in pairs (bf16: in groups of 32).
  void linear(const std::string& name, std::int64_t rows, std::int64_t cols, DType dtype) {
    add(name, rows * cols,
        round_up(rows, 16) * round_up(cols, dtype == DType::bf16 ? 32 : 2) * size_of(dtype), false);
  }
  void linear(const std::string& name, const TensorView& matrix) {
    linear(name, matrix.shape[0], matrix.shape[1], matrix.dtype);
  }
  /// The up and down weights of a ReGLU: one row a neuron, in groups of 32.
  void neurons(const std::string& name, std::int64_t neurons, std::int64_t width, DType dtype) {
    add(name, neurons * width, round_up(neurons, 1) * round_up(width, 32) * size_of(dtype), false);
  }
  void add(const std::string& name, std::int64_t parameters, std::size_t bytes, bool mapped) {
    auto part = std::find_if(parts_.begin(), parts_.end(), [&](const auto& p) { return p.name == name; });
    if (part == parts_.end()) part = parts_.insert(parts_.end(), MemoryPart{name, 0, 0, mapped});
    part->parameters += parameters;
    part->bytes += bytes;
  }
  std::vector<MemoryPart> take() { return std::move(parts_); }

 private:
  std::vector<MemoryPart> parts_;
};

std::int64_t count(const NormParams& norm) {
  return static_cast<std::int64_t>(norm.alpha.size() + norm.gamma.size() + norm.beta.size());
}

std::int64_t count(const AttentionHeadParams& heads, const ModelConfig& config) {
  const std::size_t sigma = config.attention_form == AttentionForm::asynci ? heads.sigma.size() : 0;
  return static_cast<std::int64_t>(sigma + heads.slope.size() + heads.bias.size() + heads.gain.size());
}

void add_feed_forward(MemoryTable& table, const ModelConfig& config, const FeedForwardWeights& mlp) {
  if (config.activation == Activation::relu) {
    table.linear("gate", mlp.gate);
    table.neurons("up", config.intermediate_size, config.hidden_size, mlp.up.dtype);
    table.neurons("down", config.intermediate_size, config.hidden_size, mlp.down.dtype);
  } else {
    table.linear("gate and up", std::int64_t{2} * config.intermediate_size, config.hidden_size,
                 mlp.gate.dtype);
    table.linear("down", mlp.down);
  }
}

std::vector<MemoryPart> memory_of(const ModelConfig& config, const ModelWeights& weights) {
  MemoryTable table;
  table.add("embedding (mapped)", weights.embedding.shape.elements(), weights.embedding.bytes(), true);
  std::int64_t small = count(weights.final_norm);
  for (const LayerWeights& layer : weights.layers) {
    table.linear("qkv projection", (std::int64_t{config.heads} + 2 * config.kv_heads) * config.head_dim,
                 config.hidden_size, layer.q_proj.dtype);
    table.linear("output projection", layer.o_proj);
    add_feed_forward(table, config, layer.mlp);
    small += count(layer.input_norm) + count(layer.mlp_norm) + count(layer.heads, config);
    for (const auto& norm : {layer.q_norm, layer.k_norm, layer.post_attention_norm})
      if (norm) small += count(*norm);
  }
  table.linear("head", weights.head);
  table.add("norms and heads", small, static_cast<std::size_t>(small) * sizeof(float), false);
  return table.take();
}

Range range_of(const std::vector<float>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

void widen(Range& range, const std::vector<float>& values) {
  const Range other = range_of(values);
  range = {std::min(range.low, other.low), std::max(range.high, other.high)};
}

void add_norm(std::vector<NormReport>& reports, const std::string& place, const NormParams& norm) {
  auto report = std::find_if(reports.begin(), reports.end(), [&](const auto& r) { return r.place == place; });
  if (report == reports.end()) {
    report = reports.insert(reports.end(), NormReport{place, {}, range_of(norm.gamma), {}});
  }
  widen(report->gamma, norm.gamma);
  if (!norm.alpha.empty()) {
    if (!report->alpha) report->alpha = range_of(norm.alpha);
    widen(*report->alpha, norm.alpha);
  }
  if (!norm.beta.empty()) {
    if (!report->beta) report->beta = range_of(norm.beta);
    widen(*report->beta, norm.beta);
  }
}

std::vector<NormReport> norms_of(const ModelWeights& weights) {
  std::vector<NormReport> reports;
  for (const LayerWeights& layer : weights.layers) {
    add_norm(reports, "input", layer.input_norm);
    if (layer.q_norm) add_norm(reports, "q", *layer.q_norm);
    if (layer.k_norm) add_norm(reports, "k", *layer.k_norm);
    if (layer.post_attention_norm) add_norm(reports, "after attention", *layer.post_attention_norm);
    add_norm(reports, "feed-forward", layer.mlp_norm);
  }
  add_norm(reports, "final", weights.final_norm);
  return reports;
}

void add_heads(ModelReport& report, const ModelWeights& weights) {
  for (const LayerWeights& layer : weights.layers) {
    LayerHeads heads{"", range_of(layer.heads.sigma)};
    for (std::int32_t h = 0; h < report.config.heads; ++h) {
      const HeadClass kind = classify_head(report.config.attention, layer.heads, h);
      heads.classes += kind == HeadClass::skip_safe ? 's' : kind == HeadClass::dead ? 'd' : 'D';
      ++report.class_counts[static_cast<std::size_t>(kind)];
    }
    report.heads.push_back(std::move(heads));
  }
}

}  // namespace

ModelReport inspect_model(const ModelConfig& config, const Checkpoint& checkpoint,
                          const ModelWeights& weights) {
  ModelReport report;
  report.config = config;
  report.file_bytes = checkpoint.file_bytes();
  std::set<std::string> dtypes;
  for (const LayerWeights& layer : weights.layers)
    for (const TensorView& view : {weights.embedding, layer.q_proj, layer.o_proj, layer.mlp.gate})
      dtypes.emplace(name(view.dtype));
  report.dtypes.assign(dtypes.begin(), dtypes.end());
  report.memory = memory_of(config, weights);
  for (const MemoryPart& part : report.memory)
    if (!(config.tie_word_embeddings && part.name == "head")) report.parameters += part.parameters;
  const std::size_t kv_values = std::size_t{2} * static_cast<std::size_t>(config.layers) *
                                static_cast<std::size_t>(config.kv_heads) *
                                static_cast<std::size_t>(config.head_dim);
  report.kv_bytes_fp32 = kv_values * size_of(DType::f32);
  report.kv_bytes_bf16 = kv_values * size_of(DType::bf16);
  if (config.attention.kind == AttentionKind::asynci) add_heads(report, weights);
  report.norms = norms_of(weights);
  return report;
}

std::vector<BadTensor> find_bad_values(const Checkpoint& checkpoint) {
  std::vector<BadTensor> bad;
  for (const std::string& name : checkpoint.names()) {
    const TensorView view = *checkpoint.find(name);
    BadTensor counts{name, 0, 0};
    // By bits, in the tensor's own dtype: all exponent bits set, with or without a mantissa.
    const auto scan = [&](const auto* bits, auto sign_less, auto infinity) {
      for (std::int64_t i = 0; i < view.shape.elements(); ++i) {
        const auto magnitude = static_cast<decltype(infinity)>(bits[i] & sign_less);
        counts.nan += magnitude > infinity ? 1 : 0;
        counts.infinite += magnitude == infinity ? 1 : 0;
      }
    };
    if (view.dtype == DType::f32)
      scan(static_cast<const std::uint32_t*>(view.data), std::uint32_t{0x7fffffff},
           std::uint32_t{0x7f800000});
    else if (view.dtype == DType::bf16)
      scan(static_cast<const std::uint16_t*>(view.data), std::uint16_t{0x7fff}, std::uint16_t{0x7f80});
    else
      scan(static_cast<const std::uint16_t*>(view.data), std::uint16_t{0x7fff}, std::uint16_t{0x7c00});
    if (counts.nan + counts.infinite > 0) bad.push_back(std::move(counts));
    checkpoint.release(view);
  }
  return bad;
}

}  // namespace asynct
