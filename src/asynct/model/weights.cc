#include "asynct/model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "asynct/base/error.h"

namespace asynct {
namespace {

/// Asks for tensors by name and remembers which, so that the rest can be refused.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config) {}

  TensorView matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    asked_.insert(name);
    return checkpoint_.tensor(name, {rows, cols});
  }

  /// [1] or [size] finite values; empty when absent and not required.
  std::vector<float> parameter(const std::string& name, std::int64_t size, bool required,
                               bool scalar_allowed) {
    asked_.insert(name);
    const auto view = checkpoint_.find(name);
    const std::string expected = scalar_allowed ? cat("[1] or [", size, "]") : cat("[", size, "]");
    if (!view) {
      if (required) fail(where(name), " is missing, expected shape ", expected);
      return {};
    }
    if (view->shape != Shape{size} && !(scalar_allowed && view->shape == Shape{1}))
      fail(where(name), " has shape ", view->shape.to_string(), ", expected ", expected);
    std::vector<float> values(static_cast<std::size_t>(view->shape.elements()));
    copy_to_float(*view, values.data());
    const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    if (bad != values.end())
      fail(where(name), ": element ", bad - values.begin(), " is ", *bad, ", expected finite values");
    return values;
  }

  NormParams norm(const std::string& name, std::int64_t size) {
    NormParams params;
    params.kind = config_.norm_kind;
    params.clip_low = config_.clip_low;
    params.clip_high = config_.clip_high;
    params.epsilon = config_.rms_epsilon;
    if (config_.norm_kind == NormKind::rms) {
      params.gamma = parameter(name + ".weight", size, true, false);
    } else {
      params.alpha = parameter(name + ".alpha", size, true, true);
      params.gamma = parameter(name + ".gamma", size, true, true);
      params.beta = parameter(name + ".beta", size, false, true);
    }
    return params;
  }

  AttentionHeadParams heads(const std::string& attention) {
    AttentionHeadParams params;
    if (config_.attention_form == AttentionForm::softmax) return params;
    const std::int64_t count = config_.heads;
    if (config_.attention_form == AttentionForm::asynci)
      params.sigma = parameter(attention + ".sigma", count, true, false);
    else
      params.sigma.assign(static_cast<std::size_t>(count), 0.0F);
    params.slope = parameter(attention + ".slope", count, false, false);
    params.bias = parameter(attention + ".bias", count, false, false);
    params.gain = parameter(attention + ".gain", count, false, false);
    return params;
  }

  void same_dtype(const std::string& where, std::initializer_list<TensorView> views) const {
    for (const TensorView& view : views)
      if (view.dtype != views.begin()->dtype)
        fail(checkpoint_.dir(), ": ", where, ": ", asynct::name(views.begin()->dtype), " and ",
             asynct::name(view.dtype), " weights in one operator, expected one dtype");
  }

  /// A tied checkpoint may carry its head all the same, as long as it is the embedding.
  void tied_head(const TensorView& embedding) {
    const std::string name = "lm_head.weight";
    const auto view = checkpoint_.find(name);
    if (!view) return;
    asked_.insert(name);
    if (view->dtype != embedding.dtype || view->shape != embedding.shape ||
        std::memcmp(view->data, embedding.data, embedding.bytes()) != 0)
      fail(where(name), " differs from the embedding, but the configuration says tie_word_embeddings");
    checkpoint_.release(*view);
    checkpoint_.release(embedding);
  }

  void refuse_the_rest() const {
    constexpr std::string_view kHarmlessEnd = ".rotary_emb.inv_freq";  // a table that old files carry
    std::vector<std::string> extra;
    for (std::string& name : checkpoint_.names())
      if (asked_.count(name) == 0 && !name.ends_with(kHarmlessEnd)) extra.push_back(std::move(name));
    if (!extra.empty())
      fail(where(extra[0]), " is not part of this ", config_.model_type, " model (", extra.size(),
           " such); expected only tensors that it uses");
  }

 private:
  std::string where(const std::string& name) const {
    return cat(checkpoint_.dir(), ": tensor \"", name, "\"");
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::unordered_set<std::string> asked_;
};

LayerWeights read_layer(WeightReader& reader, const ModelConfig& config, std::int32_t index) {
  const bool asynct = config.model_type == "asynct";
  const std::string layer = cat("model.layers.", index);
  const std::string attention = layer + ".self_attn";
  const std::string mlp = layer + ".mlp";
  const std::int64_t d = config.hidden_size;
  const std::int64_t q_rows = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.kv_heads} * config.head_dim;

  LayerWeights weights;
  weights.input_norm = reader.norm(layer + (asynct ? ".input_norm" : ".input_layernorm"), d);
  weights.q_proj = reader.matrix(attention + ".q_proj.weight", q_rows, d);
  weights.k_proj = reader.matrix(attention + ".k_proj.weight", kv_rows, d);
  weights.v_proj = reader.matrix(attention + ".v_proj.weight", kv_rows, d);
  weights.o_proj = reader.matrix(attention + ".o_proj.weight", d, q_rows);
  reader.same_dtype(attention, {weights.q_proj, weights.k_proj, weights.v_proj});
  if (config.qk_norm) {
    weights.q_norm = reader.norm(attention + ".q_norm", config.head_dim);
    weights.k_norm = reader.norm(attention + ".k_norm", config.head_dim);
  }
  weights.heads = reader.heads(attention);
  if (config.post_attention_norm)
    weights.post_attention_norm = reader.norm(layer + ".post_attention_norm", d);
  // In Llama's naming "post_attention_layernorm" stands after the residual: it is the feed-forward's norm.
  weights.mlp_norm = reader.norm(layer + (asynct ? ".pre_mlp_norm" : ".post_attention_layernorm"), d);
  weights.mlp.gate = reader.matrix(mlp + ".gate_proj.weight", config.intermediate_size, d);
  weights.mlp.up = reader.matrix(mlp + ".up_proj.weight", config.intermediate_size, d);
  weights.mlp.down = reader.matrix(mlp + ".down_proj.weight", d, config.intermediate_size);
  reader.same_dtype(mlp, {weights.mlp.gate, weights.mlp.up, weights.mlp.down});
  return weights;
}

}  // namespace

ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  WeightReader reader(checkpoint, config);
  ModelWeights weights;
  weights.embedding = reader.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  if (config.tie_word_embeddings) {
    weights.head = weights.embedding;
    reader.tied_head(weights.embedding);
  } else {
    weights.head = reader.matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  for (std::int32_t i = 0; i < config.layers; ++i) weights.layers.push_back(read_layer(reader, config, i));
  weights.final_norm = reader.norm("model.norm", config.hidden_size);
  reader.refuse_the_rest();
  return weights;
}

ModelSource open_source(const std::string& dir) {
  ModelConfig config = load_config(dir);
  Checkpoint checkpoint(dir);
  ModelWeights weights = load_weights(checkpoint, config);
  return {std::move(config), std::move(checkpoint), std::move(weights)};
}

}  // namespace asynct
