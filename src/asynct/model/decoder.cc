#include "asynct/model/decoder.h"

#include <algorithm>
#include <cassert>

#include "asynct/model/memory_plan.h"
#include "asynct/ops/residual/residual_epilogue.h"

namespace asynct {
namespace {

Buffer float_rows(std::int64_t rows, std::int64_t cols) {
  return Buffer(static_cast<std::size_t>(rows * cols) * sizeof(float));
}

std::optional<Norm> optional_norm(const std::optional<NormParams>& params, std::int64_t size) {
  if (!params) return {};
  return Norm(*params, size);
}

}  // namespace

Decoder::Decoder(OpContext& context, ModelSource source, std::int64_t max_rows)
    : context_(context),
      config_(std::move(source.config)),
      checkpoint_(std::move(source.checkpoint)),
      rope_(config_.rope_theta, config_.head_dim, config_.max_positions),
      max_rows_(max_rows) {
  const ModelWeights& weights = source.weights;
  const std::int64_t d = config_.hidden_size;
  context_.reserve_weights(held_bytes(weight_parts(config_, weights)));
  embedding_.emplace(weights.embedding, config_.embedding_multiplier);
  layers_.reserve(weights.layers.size());
  for (const LayerWeights& layer : weights.layers) add_layer(layer);
  final_norm_.emplace(weights.final_norm, d);
  head_.emplace(context_, weights.head);
  checkpoint_.release(weights.head);

  const std::int64_t queries = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t keys = std::int64_t{config_.kv_heads} * config_.head_dim;
  residual_ = float_rows(max_rows, d);
  input_ = float_rows(max_rows, d);
  product_ = float_rows(max_rows, d);
  hidden_ = float_rows(max_rows, d);
  qkv_ = float_rows(max_rows, queries + 2 * keys);
  attended_ = float_rows(max_rows, queries);
}

void Decoder::add_layer(const LayerWeights& w) {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t head = config_.head_dim;
  const TensorView qkv[] = {w.q_proj, w.k_proj, w.v_proj};
  layers_.push_back({.input_norm = Norm(w.input_norm, d),
                     .qkv_projection = QkvProjection({.qkv = Linear(context_, qkv),
                                                      .q_norm = optional_norm(w.q_norm, head),
                                                      .k_norm = optional_norm(w.k_norm, head),
                                                      .heads = config_.heads,
                                                      .kv_heads = config_.kv_heads,
                                                      .head_dim = config_.head_dim}),
                     .attention = Attention(config_.attention, w.heads),
                     .output_projection = Linear(context_, {&w.o_proj, 1}),
                     .post_attention_norm = optional_norm(w.post_attention_norm, d),
                     .mlp_norm = Norm(w.mlp_norm, d),
                     .feed_forward = FeedForward(context_, w.mlp, config_.activation)});
  for (const TensorView& packed : {w.q_proj, w.k_proj, w.v_proj, w.o_proj, w.mlp.gate, w.mlp.up, w.mlp.down})
    checkpoint_.release(packed);
}

Decoder::Activations Decoder::activations(std::int64_t rows) const {
  const std::int64_t d = config_.hidden_size;
  const std::int64_t queries = std::int64_t{config_.heads} * config_.head_dim;
  const std::int64_t keys = std::int64_t{config_.kv_heads} * config_.head_dim;
  return {.residual = {residual_.as<float>(), rows, d},
          .input = {input_.as<float>(), rows, d},
          .product = {product_.as<float>(), rows, d},
          .qkv = {qkv_.as<float>(), rows, queries + 2 * keys},
          .attended = {attended_.as<float>(), rows, queries}};
}

ConstMatrix Decoder::forward(const StepBatch& batch, const KvCache& cache) {
  assert(batch.rows() <= max_rows());
  const Activations a = activations(batch.rows());
  const std::size_t last = layers_.size() - 1;
  rope_.prepare(*std::max_element(batch.context_length.begin(), batch.context_length.end()));
  plan_.build(config_.attention, batch, context_.pool().size());
  embedding_->run(context_, batch.tokens, a.residual);
  layers_[0].input_norm.run(context_, a.residual, a.input);
  for (std::size_t layer = 0; layer < last; ++layer) {
    project_qkv(layer, batch, cache, a);
    attend_and_feed_forward(layer, batch, plan_, cache, a);
  }
  project_qkv(last, batch, cache, a);
  if (batch.logits_rows.empty()) return {};  // a chunk of a prompt: its keys and values were all it was for
  tail_.build(config_.attention, batch, context_.pool().size());
  const Activations t = take_tail(a);
  attend_and_feed_forward(last, tail_.batch(), tail_.plan(), cache, t);

  const Matrix hidden(hidden_.as<float>(), t.input.rows, config_.hidden_size);
  for (std::int64_t i = 0; i < t.input.rows; ++i)
    std::copy_n(t.input.row(i), hidden.cols, hidden.row(tail_.result()[static_cast<std::size_t>(i)]));
  return hidden;
}

void Decoder::project_qkv(std::size_t index, const StepBatch& batch, const KvCache& cache,
                          const Activations& a) {
  layers_[index].qkv_projection.run(context_, rope_, batch, a.input, a.qkv,
                                    cache.layer(static_cast<std::int32_t>(index)));
}

void Decoder::attend_and_feed_forward(std::size_t index, const StepBatch& batch, const AttentionPlan& plan,
                                      const KvCache& cache, const Activations& a) {
  const Layer& layer = layers_[index];
  layer.attention.run(context_, plan, batch, cache.layer(static_cast<std::int32_t>(index)),
                      a.qkv.slice_cols(0, a.attended.cols), a.attended);
  layer.output_projection.run(
      context_, a.attended, a.product,
      ResidualEpilogue{.context = context_,
                       .product = a.product,
                       .residual = a.residual,
                       .next_input = a.input,
                       .post = layer.post_attention_norm ? &*layer.post_attention_norm : nullptr,
                       .next = layer.mlp_norm});
  layer.feed_forward.run(context_, a.input, a.product,
                         ResidualEpilogue{.context = context_,
                                          .product = a.product,
                                          .residual = a.residual,
                                          .next_input = a.input,
                                          .post = nullptr,
                                          .next = norm_after(index)});
}

Decoder::Activations Decoder::take_tail(const Activations& a) {
  // In two steps, through buffers that are free now: tail rows come in another order than the batch's.
  const Activations t = activations(static_cast<std::int64_t>(tail_.source().size()));
  for (std::int64_t i = 0; i < t.residual.rows; ++i) {
    const std::int32_t row = tail_.source()[static_cast<std::size_t>(i)];
    std::copy_n(a.residual.row(row), t.product.cols, t.product.row(i));
    std::copy_n(a.qkv.row(row), t.attended.cols, t.attended.row(i));
  }
  for (std::int64_t i = 0; i < t.residual.rows; ++i) {
    std::copy_n(t.product.row(i), t.residual.cols, t.residual.row(i));
    std::copy_n(t.attended.row(i), t.attended.cols, t.qkv.row(i));
  }
  return t;
}

const Norm& Decoder::norm_after(std::size_t layer) const {
  return layer + 1 < layers_.size() ? layers_[layer + 1].input_norm : *final_norm_;
}

FeedForward::Counts Decoder::neuron_counts() const {
  FeedForward::Counts total;
  for (const FeedForward::Counts& layer : layer_neuron_counts()) {
    total.neurons += layer.neurons;
    total.active += layer.active;
  }
  return total;
}

std::vector<FeedForward::Counts> Decoder::layer_neuron_counts() const {
  std::vector<FeedForward::Counts> counts;
  for (const Layer& layer : layers_) counts.push_back(layer.feed_forward.counts());
  return counts;
}

std::size_t Decoder::weight_bytes() const {
  std::size_t bytes = head_->packed_bytes();
  for (const Layer& layer : layers_)
    bytes += layer.qkv_projection.packed_bytes() + layer.output_projection.packed_bytes() +
             layer.feed_forward.packed_bytes();
  return bytes;
}

std::size_t Decoder::buffer_bytes() const {
  return residual_.size() + input_.size() + product_.size() + hidden_.size() + qkv_.size() + attended_.size();
}

std::size_t Decoder::buffer_bytes(const ModelConfig& config, std::int64_t max_rows) {
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;
  const std::int64_t width = std::int64_t{4} * config.hidden_size + 2 * (queries + keys);
  return static_cast<std::size_t>(max_rows * width) * sizeof(float);
}

}  // namespace asynct
