#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/feed_forward/feed_forward.h"
#include "asynct/ops/norm/norm.h"

namespace asynct {

/// The kind of attention as config.json names it; uniaffine runs as asynci without pooling.
enum class AttentionForm { asynci, uniaffine, softmax };
std::string_view name(AttentionForm form);

/// What a decoder is, without its weights: `asynct`, `llama` and `qwen3` checkpoints in one form.
struct ModelConfig {
  std::string model_type;  // "asynct", "llama" or "qwen3": decides the tensors' names
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t intermediate_size = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t max_positions = 0;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
  Activation activation = Activation::relu;
  float embedding_multiplier = 1;

  AttentionForm attention_form = AttentionForm::asynci;
  AttentionConfig attention;  // complete: heads, sizes, scale

  NormKind norm_kind = NormKind::dyht;
  float clip_low = -1;  // dyht
  float clip_high = 1;
  float rms_epsilon = 1e-6F;  // rms
  bool qk_norm = true;
  bool post_attention_norm = true;  // a norm between the output projection and the residual

  std::optional<std::int32_t> bos_id;
  std::vector<std::int32_t> eos_ids;  // generation ends at any of them
  std::optional<std::int32_t> pad_id;
};

/// Reads `dir`/config.json, and the end-of-text ids of `dir`/generation_config.json where it gives any (they
/// are what transformers' generate() obeys). Errors: a missing file, wrong types, values out of range, and
/// every key that is not known to leave the arithmetic alone: a model that is not the one meant must not run.
ModelConfig load_config(const std::string& dir);

/// The same from the text of a config.json; `what` opens every message.
ModelConfig parse_config(std::string_view json, std::string_view what);

}  // namespace asynct
