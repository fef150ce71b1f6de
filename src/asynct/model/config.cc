#include "asynct/model/config.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"
#include "asynct/model/config_fields.h"

namespace asynct {
namespace {

// Far above any model that exists, low enough that products of two fit 63 bits.
constexpr std::int32_t kMaxVocab = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMaxWidth = 1 << 20;
constexpr std::int32_t kMaxLayers = 4096;
constexpr std::int32_t kMaxHeads = 1024;
constexpr std::int32_t kMaxHeadDim = 1024;
constexpr std::int32_t kMaxPositions = 1 << 24;
constexpr double kMaxFactor = 1e6;
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

/// Keys that transformers writes and that do not change what a decoder computes in inference.
constexpr std::string_view kHarmlessKeys[] = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_model_name_or_path",
    "_name_or_path", "architectures", "attn_implementation", "auto_map", "chunk_size_feed_forward", "dtype",
    "finetuning_task", "id2label", "initializer_range", "is_decoder", "is_llama_config",
    "keys_to_ignore_at_inference", "label2id", "max_window_layers", "model_type", "name_or_path",
    "num_labels", "output_attentions", "output_hidden_states", "problem_type", "return_dict",
    "sliding_window", "task_specific_params", "tokenizer_class", "torch_dtype", "transformers.js_config",
    "transformers_version", "unk_token_id", "use_cache",
    // Sampling defaults of old files; sampling is the caller's business.
    "do_sample", "early_stopping", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "num_beams", "num_return_sequences", "prefix", "repetition_penalty", "temperature", "top_k", "top_p",
    "typical_p"};

/// Keys that are fine at one value.
void refuse_unsupported_values(ConfigFields& fields) {
  fields.require_only("attention_dropout", 0);
  fields.require_only("attention_bias", false);
  fields.require_only("mlp_bias", false);
  fields.require_only("pretraining_tp", 1);
  fields.require_only("use_sliding_window", false);
  fields.require_only("is_encoder_decoder", false);
  fields.require_only("add_cross_attention", false);
  fields.require_only("rope_interleaved", false);
  fields.require_only("partial_rotary_factor", 1);
  fields.require_all("layer_types", "full_attention");
}

/// rope_theta stands alone (transformers 4) or in rope_parameters (transformers 5); scaled variants are
/// refused.
double read_rope_theta(ConfigFields& fields, std::string_view what) {
  double theta = fields.number("rope_theta", 1, 1e12, 10000);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Json* const object = fields.object(key);
    if (object == nullptr) continue;
    ConfigFields rope(*object, cat(what, ": ", key));
    rope.choice("rope_type", {"default"}, "default");
    rope.choice("type", {"default"}, "default");
    rope.require_only("partial_rotary_factor", 1);
    theta = rope.number("rope_theta", 1, 1e12, theta);
    rope.refuse_the_rest();
  }
  return theta;
}

void read_sizes(ConfigFields& fields, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = fields.integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxWidth);
  config.layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = fields.integer("num_key_value_heads", 1, kMaxHeads, config.heads);
  if (config.heads % config.kv_heads != 0)
    fields.reject("num_key_value_heads", cat("a divisor of num_attention_heads = ", config.heads));
  if (fields.has("head_dim")) {
    config.head_dim = fields.integer("head_dim", 2, kMaxHeadDim);
  } else {
    fields.ignore("head_dim");
    if (config.model_type == "qwen3") {
      config.head_dim = 128;  // the default of its transformers configuration
    } else if (config.hidden_size % config.heads == 0 && config.hidden_size / config.heads <= kMaxHeadDim) {
      config.head_dim = config.hidden_size / config.heads;
    } else {
      fields.reject("head_dim", cat("a value, since hidden_size ", config.hidden_size, " over ", config.heads,
                                    " heads gives no head size"));
    }
  }
  if (config.head_dim % 2 != 0)
    fields.reject("head_dim", cat("an even number (RoPE rotates halves), not ", config.head_dim));
}

Activation read_activation(ConfigFields& fields, std::string_view fallback) {
  return fields.choice("hidden_act", {"relu", "silu"}, fallback) == "relu" ? Activation::relu
                                                                           : Activation::silu;
}

std::optional<std::int32_t> only_id(ConfigFields& fields, std::string_view key, std::int32_t vocab_size) {
  const auto ids = fields.token_ids(key, vocab_size);
  if (ids.size() > 1) fields.reject(key, "one token id");
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

void read_special_tokens(ConfigFields& fields, ModelConfig& config) {
  config.bos_id = only_id(fields, "bos_token_id", config.vocab_size);
  config.eos_ids = fields.token_ids("eos_token_id", config.vocab_size);
  config.pad_id = only_id(fields, "pad_token_id", config.vocab_size);
}

AttentionForm read_attention_form(ConfigFields& fields) {
  const std::string form = fields.choice(
      "attention_kind", {"asynci", "uniaffine", "softmax", "differential", "dual_chunk"}, "asynci");
  if (form == "asynci") return AttentionForm::asynci;
  if (form == "uniaffine") return AttentionForm::uniaffine;
  if (form == "softmax") return AttentionForm::softmax;
  fields.reject("attention_kind", "asynci, uniaffine or softmax: this kind is not supported yet");
}

void read_asynct(ConfigFields& fields, ModelConfig& config) {
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions, 2048);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  config.activation = read_activation(fields, "relu");
  config.embedding_multiplier =
      static_cast<float>(fields.number("embedding_multiplier", -kMaxFactor, kMaxFactor, 1.0));

  config.attention_form = read_attention_form(fields);
  AttentionConfig& attention = config.attention;
  attention.kind =
      config.attention_form == AttentionForm::softmax ? AttentionKind::softmax : AttentionKind::asynci;
  attention.scale =
      static_cast<float>(fields.number("attention_scale", -kMaxFactor, kMaxFactor, 1.0 / config.hidden_size));
  attention.pool_size = fields.integer("pool_size", 1, 5, 3);
  if (attention.pool_size == 4) fields.reject("pool_size", "1, 2, 3 or 5");
  attention.pool_relu = fields.boolean("pool_relu", true);
  if (config.attention_form == AttentionForm::uniaffine) {  // sigma 0: pooling has no part in it
    attention.pool_size = 1;
    attention.pool_relu = true;
  }

  config.norm_kind =
      fields.choice("norm_kind", {"dyht", "rms"}, "dyht") == "dyht" ? NormKind::dyht : NormKind::rms;
  const auto [low, high] = fields.interval("norm_clip", {-1.0, 1.0});
  config.clip_low = static_cast<float>(low);
  config.clip_high = static_cast<float>(high);
  if (!std::isfinite(config.clip_low) || !std::isfinite(config.clip_high))
    fields.reject("norm_clip", "two numbers in the range of fp32");
  config.rms_epsilon = static_cast<float>(fields.number("rms_norm_eps", 1e-30, 1, 1e-6));
  config.qk_norm = fields.boolean("qk_norm", true);
  config.post_attention_norm = fields.boolean("post_attention_norm", true);
  read_special_tokens(fields, config);
}

/// Llama and Qwen3: RMSNorm, softmax, a gated feed-forward without biases.
void read_twin(ConfigFields& fields, ModelConfig& config) {
  const bool qwen = config.model_type == "qwen3";
  config.max_positions = fields.integer("max_position_embeddings", 1, kMaxPositions, qwen ? 32768 : 2048);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.activation = read_activation(fields, "silu");
  config.attention_form = AttentionForm::softmax;
  config.attention.kind = AttentionKind::softmax;
  config.attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  config.attention.pool_size = 1;
  config.norm_kind = NormKind::rms;
  config.rms_epsilon = static_cast<float>(fields.number("rms_norm_eps", 1e-30, 1, 1e-6));
  config.qk_norm = qwen;
  config.post_attention_norm = false;
  const bool states_eos = fields.has("eos_token_id");
  read_special_tokens(fields, config);
  if (!qwen && !states_eos && config.vocab_size > 2) config.eos_ids = {2};  // transformers' default
}

/// The ids that end generation by generation_config.json; empty when it says nothing.
std::vector<std::int32_t> generation_eos(const std::string& dir, std::int32_t vocab_size) {
  const std::string path = dir + "/generation_config.json";
  std::error_code unreadable;  // opening it will say why
  if (!std::filesystem::exists(path, unreadable) && !unreadable) return {};
  const Json json = parse_json_file(path, kMaxConfigBytes);
  return ConfigFields(json, path).token_ids("eos_token_id", vocab_size);
}

}  // namespace

std::string_view name(AttentionForm form) {
  switch (form) {
    case AttentionForm::asynci:
      return "asynci";
    case AttentionForm::uniaffine:
      return "uniaffine";
    case AttentionForm::softmax:
      return "softmax";
  }
  return "?";
}

ModelConfig parse_config(std::string_view text, std::string_view what) {
  const Json json = parse_json(text, what, 16);
  ConfigFields fields(json, what);
  ModelConfig config;
  config.model_type = fields.choice("model_type", {"asynct", "llama", "qwen3"});
  for (const std::string_view key : kHarmlessKeys) fields.ignore(key);
  refuse_unsupported_values(fields);
  read_sizes(fields, config);
  config.rope_theta = read_rope_theta(fields, what);
  if (config.model_type == "asynct")
    read_asynct(fields, config);
  else
    read_twin(fields, config);
  config.attention.heads = config.heads;
  config.attention.kv_heads = config.kv_heads;
  config.attention.head_dim = config.head_dim;
  fields.refuse_the_rest();
  return config;
}

ModelConfig load_config(const std::string& dir) {
  const std::string path = dir + "/config.json";
  std::error_code unreadable;
  if (!std::filesystem::is_directory(dir, unreadable))
    fail(dir, ": not a directory; expected a checkpoint with config.json and model.safetensors");
  ModelConfig config = parse_config(read_file(path, kMaxConfigBytes), path);
  if (auto ids = generation_eos(dir, config.vocab_size); !ids.empty()) config.eos_ids = std::move(ids);
  return config;
}

}  // namespace asynct
