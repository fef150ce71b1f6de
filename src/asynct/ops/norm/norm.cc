#include "asynct/ops/norm/norm.h"

#include <cassert>

#include "asynct/base/error.h"
#include "asynct/ops/kernel_tables.h"
#include "asynct/ops/norm/kernels.h"

namespace asynct {
namespace {

const norm::KernelTable& kernels(Isa isa) {
  return select_kernels(isa, norm::kScalarKernels, norm::kAvx2Kernels, norm::kAvx512Kernels);
}

void broadcast(std::vector<float>& values, std::int64_t size, const char* what) {
  const auto wanted = static_cast<std::size_t>(size);
  if (values.size() == wanted) return;
  if (values.size() != 1) fail("norm ", what, ": found ", values.size(), " values, expected 1 or ", size);
  values.assign(wanted, float{values.front()});
}

}  // namespace

Norm::Norm(const NormParams& params, std::int64_t size) : params_(params), size_(size) {
  if (size <= 0) fail("norm: size ", size, ", expected at least 1");
  broadcast(params_.gamma, size, "gamma");
  if (params_.kind == NormKind::rms) return;
  broadcast(params_.alpha, size, "alpha");
  if (!params_.beta.empty()) broadcast(params_.beta, size, "beta");
}

void Norm::apply(const OpContext& context, const float* x, float* y, bool round) const {
  const norm::RowArgs args = {.x = x,
                              .y = y,
                              .size = size_,
                              .alpha = params_.alpha.data(),
                              .gamma = params_.gamma.data(),
                              .beta = params_.beta.empty() ? nullptr : params_.beta.data(),
                              .low = params_.clip_low,
                              .high = params_.clip_high,
                              .epsilon = params_.epsilon,
                              .round = round && context.precision() == Precision::bf16};
  const norm::KernelTable& table = kernels(context.isa());
  (params_.kind == NormKind::dyht ? table.dyht : table.rms)(args);
}

void Norm::run(OpContext& context, ConstMatrix x, Matrix y) const {
  assert(x.cols == size_ && y.cols == size_ && x.rows == y.rows);
  constexpr std::int64_t kRows = 8;  // a row is a few hundred nanoseconds
  context.pool().parallel_for(x.rows, kRows, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
    for (std::int64_t row = begin; row < end; ++row) apply(context, x.row(row), y.row(row), true);
  });
}

}  // namespace asynct
