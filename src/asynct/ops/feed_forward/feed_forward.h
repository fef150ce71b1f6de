#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "asynct/ops/feed_forward/neuron_rows.h"
#include "asynct/ops/linear/linear.h"

namespace asynct {

enum class Activation { relu, silu };

struct FeedForwardWeights {
  TensorView gate;  // [F, d]
  TensorView up;    // [F, d]
  TensorView down;  // [d, F]
};

/// y = down(act(gate x) * (up x)).
///
/// With relu (ReGLU) most neurons of a token are zero; the up product and the down product then read only the
/// rows of the active ones, at every batch size. That is exact: a zero neuron adds fma(0, w, acc) = acc.
/// One order of summation whatever the batch: up's sum runs over 16 lanes of k, then a fixed tree; down's sum
/// runs over active neurons in ascending order. A neuron whose gate is NaN is active, so NaN in gives NaN
/// out; infinite or NaN weights of an inactive neuron are not seen. In bf16 precision act(gate x) * (up x) is
/// rounded once.
class FeedForward {
 public:
  FeedForward(const OpContext& context, const FeedForwardWeights& weights, Activation activation);

  /// x [M, d], y [M, d], not overlapping; y unrounded, epilogue as for Linear::run.
  void run(OpContext& context, ConstMatrix x, Matrix y, std::optional<RowEpilogue> epilogue = {}) const;

  std::size_t packed_bytes() const;

  /// What run() takes for up to `max_rows` rows, from the weights' shapes and dtype.
  static ScratchSize scratch_size(const OpContext& context, const FeedForwardWeights& weights,
                                  Activation activation, std::int64_t max_rows);

  /// Neurons seen and neurons active (relu only) since construction: what `bench` reports.
  struct Counts {
    std::int64_t neurons = 0;
    std::int64_t active = 0;
  };
  Counts counts() const { return {counters_->neurons.load(), counters_->active.load()}; }

 private:
  void run_sparse(OpContext& context, ConstMatrix x, Matrix y,
                  const std::optional<RowEpilogue>& epilogue) const;
  void run_dense(OpContext& context, ConstMatrix x, Matrix y,
                 const std::optional<RowEpilogue>& epilogue) const;

  Activation activation_;
  std::int64_t neurons_ = 0;
  Linear gate_;                       // relu: gate; silu: gate and up, stacked
  feed_forward::NeuronRows up_;       // relu
  feed_forward::NeuronRows down_;     // relu
  std::optional<Linear> dense_down_;  // silu

  struct Counters {
    std::atomic<std::int64_t> neurons{0};
    std::atomic<std::int64_t> active{0};
  };
  std::unique_ptr<Counters> counters_ = std::make_unique<Counters>();  // on the heap: operators move
};

}  // namespace asynct
