#include "asynct/model/synth_tensors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "asynct/base/error.h"

namespace asynct {
namespace {

constexpr double kBlockAlpha = 0.6;
constexpr double kQkAlpha = 1.5;
constexpr double kPostAttentionAlpha = 1.0;

/// What follows the attention and the feed-forward into the residual is scaled by this over sqrt(2 L).
constexpr double kResidualGain = 3.0;

/// The finalizer of splitmix64: a bijection whose output bits all depend on all input bits.
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::uint64_t tensor_key(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return mix(hash ^ mix(seed + 0x9e3779b97f4a7c15U));
}

/// Elements [begin, end) of a standard normal sequence; begin is even. Counter-based (element pair i comes
/// from one hash of i), so that any piece can be made by any thread. Box-Muller.
void fill_normal(std::uint64_t key, std::int64_t begin, std::int64_t end, float deviation, float* out) {
  for (std::int64_t i = begin; i < end; i += 2) {
    const std::uint64_t bits = mix(key + static_cast<std::uint64_t>(i / 2 + 1) * 0x9e3779b97f4a7c15U);
    const float u = (static_cast<float>(bits >> 32) + 0.5F) * 0x1p-32F;  // (0, 1]
    const float angle = static_cast<float>(bits & 0xffffffffU) * (0x1p-32F * 2 * std::numbers::pi_v<float>);
    const float radius = deviation * std::sqrt(-2 * std::log(u));
    *out++ = radius * std::cos(angle);
    if (i + 1 < end) *out++ = radius * std::sin(angle);
  }
}

double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double normal_tail(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

/// z with P(X < z) = p, by bisection.
double normal_quantile(double p) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (1 - normal_tail(middle) < p ? low : high) = middle;
  }
  return low;
}

/// E[clamp(alpha X, -1, 1)^2], X normal with the given variance.
double clamped_power(double alpha, double variance) {
  const double edge = 1 / (alpha * std::sqrt(variance));
  const double tail = normal_tail(edge);
  return alpha * alpha * variance * (1 - 2 * tail - 2 * edge * normal_density(edge)) + 2 * tail;
}

class TensorList {
 public:
  TensorList(const SynthOptions& options, const SynthShape& shape) : options_(options), shape_(shape) {}

  void matrix(const std::string& name, std::int64_t rows, std::int64_t cols, double deviation,
              std::optional<float> channel0 = {}) {
    matrices_.push_back({name, {rows, cols}, static_cast<float>(deviation), 0, channel0});
  }
  void constant(const std::string& name, std::int64_t size, double value,
                std::optional<float> channel0 = {}) {
    parameters_.push_back({name, {size}, 0, static_cast<float>(value), channel0});
  }
  void norm(const std::string& name, std::int64_t size, double alpha) {
    if (options_.norm == NormKind::rms) {
      constant(name + ".weight", size, 1);
    } else {
      constant(name + ".alpha", 1, alpha);
      constant(name + ".gamma", size, 1);
    }
  }
  void layer(std::int32_t index, std::optional<double> gate_offset);

  std::vector<SynthTensor> take() {
    matrices_.insert(matrices_.end(), parameters_.begin(), parameters_.end());
    return std::move(matrices_);
  }

 private:
  const SynthOptions& options_;
  const SynthShape& shape_;
  std::vector<SynthTensor> matrices_;
  std::vector<SynthTensor> parameters_;
};

void TensorList::layer(std::int32_t index, std::optional<double> gate_offset) {
  const std::string layer = cat("model.layers.", index);
  const std::string attention = layer + ".self_attn";
  const std::int64_t d = shape_.hidden;
  const std::int64_t q_rows = std::int64_t{shape_.heads} * shape_.head_dim;
  const std::int64_t kv_rows = std::int64_t{shape_.kv_heads} * shape_.head_dim;
  const double in = 1 / std::sqrt(static_cast<double>(d));
  const double gain = kResidualGain / std::sqrt(2.0 * shape_.layers);

  norm(layer + ".input_norm", d, kBlockAlpha);
  matrix(attention + ".q_proj.weight", q_rows, d, in);
  matrix(attention + ".k_proj.weight", kv_rows, d, in);
  matrix(attention + ".v_proj.weight", kv_rows, d, in);
  matrix(attention + ".o_proj.weight", d, q_rows, gain / std::sqrt(static_cast<double>(q_rows)));
  norm(attention + ".q_norm", shape_.head_dim, kQkAlpha);
  norm(attention + ".k_norm", shape_.head_dim, kQkAlpha);
  if (options_.attention == AttentionForm::asynci) constant(attention + ".sigma", shape_.heads, 1);
  norm(layer + ".post_attention_norm", d, kPostAttentionAlpha);

  std::optional<float> gate_channel;
  if (gate_offset) {  // channel 0 of the norm's output is the constant 1, and the gates weigh it negatively
    const std::string name = layer + ".pre_mlp_norm";
    constant(name + ".alpha", d, kBlockAlpha, 0.0F);
    constant(name + ".gamma", d, 1);
    constant(name + ".beta", d, 0, 1.0F);
    gate_channel = static_cast<float>(-*gate_offset);
  } else {
    norm(layer + ".pre_mlp_norm", d, kBlockAlpha);
  }
  matrix(layer + ".mlp.gate_proj.weight", shape_.intermediate, d, in, gate_channel);
  matrix(layer + ".mlp.up_proj.weight", shape_.intermediate, d, in);
  matrix(layer + ".mlp.down_proj.weight", d, shape_.intermediate,
         gain / std::sqrt(static_cast<double>(shape_.intermediate)));
}

/// Values [begin, end) of the tensor, in float.
void make_values(const SynthTensor& tensor, std::uint64_t key, std::int64_t begin, std::int64_t end,
                 float* out) {
  if (tensor.deviation == 0)
    std::fill(out, out + (end - begin), tensor.value);
  else
    fill_normal(key, begin, end, tensor.deviation, out);
  if (!tensor.channel0) return;
  const std::int64_t cols = tensor.shape[tensor.shape.rank() - 1];
  for (std::int64_t i = (begin + cols - 1) / cols * cols; i < end; i += cols)
    out[i - begin] = *tensor.channel0;
}

}  // namespace

std::vector<double> gate_offsets(const SynthShape& shape, double zeros) {
  const double z = normal_quantile(zeros);
  const double gain = kResidualGain / std::sqrt(2.0 * shape.layers);
  // E[max(N - z, 0)^2], N standard normal: what relu leaves of a gate of unit deviation.
  const double relu_power = (1 + z * z) * normal_tail(z) - z * normal_density(z);
  double variance = 1;  // of the residual: embedding 0.02 times 50
  std::vector<double> offsets;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
    const double power = clamped_power(kBlockAlpha, variance) * (shape.hidden - 1) / shape.hidden;
    offsets.push_back(z * std::sqrt(power));
    const double up_power = power + 1.0 / shape.hidden;
    variance += gain * gain * relu_power * power * up_power;
  }
  return offsets;
}

std::vector<SynthTensor> synth_tensors(const SynthOptions& options, const SynthShape& shape) {
  TensorList list(options, shape);
  list.matrix("model.embed_tokens.weight", shape.vocab, shape.hidden, 0.02);
  std::vector<double> offsets;
  if (options.gate_zeros) offsets = gate_offsets(shape, *options.gate_zeros);
  for (std::int32_t i = 0; i < shape.layers; ++i)
    list.layer(i, offsets.empty() ? std::nullopt : std::optional(offsets[static_cast<std::size_t>(i)]));
  list.norm("model.norm", shape.hidden, kBlockAlpha);
  if (!shape.tied)
    list.matrix("lm_head.weight", shape.vocab, shape.hidden,
                1 / std::sqrt(static_cast<double>(shape.hidden)));
  return list.take();
}

void fill_tensor(const SynthTensor& tensor, const SynthOptions& options, ThreadPool& pool,
                 SafetensorsWriter& writer, std::size_t index) {
  constexpr std::int64_t kPiece = 1 << 16;  // even, as fill_normal wants; its buffers stay in the L2 cache
  const std::uint64_t key = tensor_key(options.seed, tensor.name);
  pool.parallel_for(
      tensor.shape.elements(), kPiece, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
        std::vector<float> values(static_cast<std::size_t>(end - begin));
        make_values(tensor, key, begin, end, values.data());
        const auto offset = static_cast<std::size_t>(begin) * size_of(options.dtype);
        if (options.dtype == DType::f32) {
          writer.write(index, offset, std::as_bytes(std::span(values)));
        } else {
          std::vector<Bf16> rounded(values.size());
          std::transform(values.begin(), values.end(), rounded.begin(), [](float v) { return to_bf16(v); });
          writer.write(index, offset, std::as_bytes(std::span(rounded)));
        }
      });
}

}  // namespace asynct
