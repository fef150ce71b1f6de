#pragma once

#include <span>
#include <vector>

#include "asynct/tensor/tensor.h"

namespace asynct::linear {

/// y[m, n] = sum_k x[m, k] * weight[n, k] in double, weights stacked along n; [x.rows, sum n_i].
std::vector<double> reference(ConstMatrix x, std::span<const TensorView> parts);

}  // namespace asynct::linear
