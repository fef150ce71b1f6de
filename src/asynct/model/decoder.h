#pragma once

#include <optional>
#include <vector>

#include "asynct/kv/kv_cache.h"
#include "asynct/model/checkpoint.h"
#include "asynct/model/config.h"
#include "asynct/model/tail_batch.h"
#include "asynct/model/weights.h"
#include "asynct/ops/attention/attention.h"
#include "asynct/ops/embedding/embedding.h"
#include "asynct/ops/feed_forward/feed_forward.h"
#include "asynct/ops/head/head.h"
#include "asynct/ops/norm/norm.h"
#include "asynct/ops/qkv_projection/qkv_projection.h"
#include "asynct/ops/rope/rope.h"

namespace asynct {

/// A decoder on the CPU: packed weights, activation buffers, and the forward pass. AsyncT, UniAffine, their
/// softmax twin, Llama and Qwen3 are this one class with different norms and attentions.
class Decoder {
 public:
  /// Packs the weights for the context's ISA and drops their pages; the embedding stays mapped. At most
  /// `max_rows` rows a step. `context` must outlive the decoder.
  Decoder(OpContext& context, ModelSource source, std::int64_t max_rows);

  const ModelConfig& config() const { return config_; }
  const Head& head() const { return *head_; }
  /// Rows a step may have.
  std::int64_t max_rows() const { return max_rows_; }

  /// Runs the batch over the cache. Returns the final hidden states of batch.logits_rows [R, d], after the
  /// final norm, valid until the next call.
  ConstMatrix forward(const StepBatch& batch, const KvCache& cache);

  /// Neurons of all layers' ReGLU seen and active so far.
  FeedForward::Counts neuron_counts() const;
  std::vector<FeedForward::Counts> layer_neuron_counts() const;

  /// Bytes of packed weights, and of activation buffers.
  std::size_t weight_bytes() const;
  std::size_t buffer_bytes() const;

  /// The latter before there is a decoder.
  static std::size_t buffer_bytes(const ModelConfig& config, std::int64_t max_rows);

 private:
  struct Layer {
    Norm input_norm;
    QkvProjection qkv_projection;
    Attention attention;
    Linear output_projection;
    std::optional<Norm> post_attention_norm;
    Norm mlp_norm;
    FeedForward feed_forward;
  };
  struct Activations {  // first rows of the buffers below
    Matrix residual;    // x [T, d]
    Matrix input;       // normed x [T, d]
    Matrix product;     // of a projection back to d [T, d]
    Matrix qkv;         // [T, (H + 2 Hk) * D]
    Matrix attended;    // [T, H * D]
  };

  void add_layer(const LayerWeights& weights);
  void project_qkv(std::size_t index, const StepBatch& batch, const KvCache& cache, const Activations& a);
  void attend_and_feed_forward(std::size_t index, const StepBatch& batch, const AttentionPlan& plan,
                               const KvCache& cache, const Activations& a);
  Activations take_tail(const Activations& a);
  const Norm& norm_after(std::size_t layer) const;
  Activations activations(std::int64_t rows) const;

  OpContext& context_;
  ModelConfig config_;
  Checkpoint checkpoint_;
  std::optional<Embedding> embedding_;
  Rope rope_;
  std::vector<Layer> layers_;
  std::optional<Norm> final_norm_;
  std::optional<Head> head_;

  std::int64_t max_rows_;
  Buffer residual_, input_, product_, qkv_, attended_, hidden_;
  AttentionPlan plan_;
  TailBatch tail_;  // the last layer's
};

}  // namespace asynct
