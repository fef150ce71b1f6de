#include "asynct/ops/residual/residual_epilogue.h"

#include "asynct/ops/rounding.h"

namespace asynct {

void ResidualEpilogue::operator()(std::int64_t begin, std::int64_t end, int /*worker*/) const {
  for (std::int64_t row = begin; row < end; ++row) {
    float* const added = product.row(row);
    float* const sum = residual.row(row);
    if (post != nullptr) post->apply(context, added, added, false);
    for (std::int64_t i = 0; i < residual.cols; ++i) sum[i] += added[i];
    round_if_bf16(context.precision(), sum, residual.cols);
    next.apply(context, sum, next_input.row(row), true);
  }
}

}  // namespace asynct
