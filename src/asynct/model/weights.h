#pragma once

#include <optional>
#include <vector>

#include "asynct/model/checkpoint.h"
#include "asynct/model/config.h"

namespace asynct {

/// One decoder layer. Matrices are views of the checkpoint, [outputs, inputs]; parameters of norms and heads
/// are copies.
struct LayerWeights {
  NormParams input_norm;
  TensorView q_proj;  // [H * D, d]
  TensorView k_proj;  // [Hk * D, d]
  TensorView v_proj;  // [Hk * D, d]
  TensorView o_proj;  // [d, H * D]
  std::optional<NormParams> q_norm;
  std::optional<NormParams> k_norm;
  AttentionHeadParams heads;  // empty vectors for softmax
  std::optional<NormParams> post_attention_norm;
  NormParams mlp_norm;
  FeedForwardWeights mlp;
};

struct ModelWeights {
  TensorView embedding;  // [V, d]
  TensorView head;       // [V, d]; the embedding when tied
  std::vector<LayerWeights> layers;
  NormParams final_norm;
};

/// Finds every tensor of the model that `config` describes, by the names of its model_type.
/// Errors: a tensor that is missing, misshapen or not part of the model; q, k and v (or gate, up and down) of
/// different dtypes; a norm or head parameter that is not finite. The views live as long as the checkpoint.
ModelWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config);

/// A checkpoint directory whose parts agree: every tensor that the configuration asks for is there, in its
/// shape. Nothing large is read or allocated yet.
struct ModelSource {
  ModelConfig config;
  Checkpoint checkpoint;
  ModelWeights weights;  // views of the checkpoint
};
ModelSource open_source(const std::string& dir);

}  // namespace asynct
