#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "asynct/base/thread_pool.h"
#include "asynct/model/config.h"

namespace asynct {

/// The size of a synthetic model: "tiny", "smollm2" (as SmolLM2-135M) or "source" (596 M parameters), each
/// open to KEY=VALUE changes: "source,layers=2,vocab=1000". Keys: layers, hidden, heads, kv_heads, head_dim,
/// intermediate, vocab, positions, tied (0 or 1), rope_theta.
struct SynthShape {
  std::int32_t layers = 2;
  std::int32_t hidden = 64;
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 16;
  std::int32_t intermediate = 192;
  std::int32_t vocab = 256;
  std::int32_t positions = 512;
  double rope_theta = 10000;
  bool tied = true;
};
SynthShape parse_synth_shape(std::string_view text);

struct SynthOptions {
  std::string shape = "tiny";
  std::string out;  // a directory that does not exist yet, or is empty
  std::uint64_t seed = 0;
  /// Wanted share of zeros in relu(gate). A random gate gives 0.5; with this, one channel of the
  /// feed-forward's norm is made constant 1 (alpha 0, beta 1) and every gate row gets the same negative
  /// weight on it.
  std::optional<double> gate_zeros;
  DType dtype = DType::bf16;                        // f32 or bf16
  AttentionForm attention = AttentionForm::asynci;  // or softmax
  NormKind norm = NormKind::dyht;
};

struct SynthSummary {
  std::int64_t parameters = 0;
  std::size_t bytes = 0;
};

/// Writes a random checkpoint by the initializer of the training recipe: embedding 0.02 with multiplier 50,
/// linear layers 1/sqrt(fan_in), output and down projections times 3/sqrt(2 L), alpha 0.6 (1.5 for q and k, 1
/// after attention), gamma and sigma 1, attention scale 1/D (softmax: 1/sqrt(D)). Every value depends on the
/// seed, the tensor's name and the position only. The directory appears when it is complete: it is written
/// beside its place and renamed.
SynthSummary write_synthetic(const SynthOptions& options, ThreadPool& pool);

/// The value whose negative, as the common gate weight of the constant channel, makes a share `zeros` of the
/// gates negative in layer 0, 1, ...: z * sqrt(E[h^2]) with z the normal quantile. E[h^2] follows the
/// residual's variance through the layers; attention's contribution is left out (measured: far below 1 %).
/// Exposed for its test.
std::vector<double> gate_offsets(const SynthShape& shape, double zeros);

}  // namespace asynct
