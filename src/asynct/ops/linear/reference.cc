#include "asynct/ops/linear/reference.h"

namespace asynct::linear {

std::vector<double> reference(ConstMatrix x, std::span<const TensorView> parts) {
  std::vector<double> y;
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (const TensorView& weight : parts)
      for (std::int64_t n = 0; n < weight.shape[0]; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < x.cols; ++k) sum += double{x.row(m)[k]} * weight.at(n * x.cols + k);
        y.push_back(sum);
      }
  return y;
}

}  // namespace asynct::linear
