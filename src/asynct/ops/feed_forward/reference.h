#pragma once

#include <vector>

#include "asynct/ops/feed_forward/feed_forward.h"

namespace asynct::feed_forward {

/// down(act(gate x) * (up x)) in double, dense: every neuron is read. With `rounded` the inner product is
/// rounded to bf16 as the operator does.
std::vector<double> reference(ConstMatrix x, const FeedForwardWeights& weights, Activation activation,
                              bool rounded);

}  // namespace asynct::feed_forward
