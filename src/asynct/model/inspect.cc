#include "asynct/model/inspect.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "asynct/base/error.h"

namespace asynct {
namespace {

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

ModelReport inspect_model(const ModelSource& source) {
  const ModelConfig& config = source.config;
  const ModelWeights& weights = source.weights;
  ModelReport report;
  report.config = config;
  report.file_bytes = source.checkpoint.file_bytes();
  std::set<std::string> dtypes;
  for (const LayerWeights& layer : weights.layers)
    for (const TensorView& view : {weights.embedding, layer.q_proj, layer.o_proj, layer.mlp.gate})
      dtypes.emplace(name(view.dtype));
  report.dtypes.assign(dtypes.begin(), dtypes.end());
  report.memory = weight_parts(config, weights);
  for (const MemoryPart& part : report.memory)
    if (!(config.tie_word_embeddings && part.name == "head")) report.parameters += part.parameters;
  report.kv_bytes_fp32 = kv_shape(config, Precision::fp32, 1).token_bytes();
  report.kv_bytes_bf16 = kv_shape(config, Precision::bf16, 1).token_bytes();
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
