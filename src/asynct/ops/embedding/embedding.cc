#include "asynct/ops/embedding/embedding.h"

#include <cassert>

#include "asynct/ops/embedding/kernels.h"
#include "asynct/ops/kernel_tables.h"

namespace asynct {
namespace {

const embedding::KernelTable& kernels(Isa isa) {
  return select_kernels(isa, embedding::kScalarKernels, embedding::kAvx2Kernels, embedding::kAvx512Kernels);
}

}  // namespace

void Embedding::run(OpContext& context, std::span<const std::int32_t> tokens, Matrix out) const {
  const std::int64_t size = table_.shape[1];
  assert(out.cols == size && out.rows == static_cast<std::int64_t>(tokens.size()));
  const embedding::KernelTable& table = kernels(context.isa());
  const auto scale_row = table_.dtype == DType::f32    ? table.f32
                         : table_.dtype == DType::bf16 ? table.bf16
                                                       : table.f16;
  const auto row_bytes = static_cast<std::int64_t>(size_of(table_.dtype)) * size;
  constexpr std::int64_t kRows = 16;
  context.pool().parallel_for(out.rows, kRows, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = tokens[static_cast<std::size_t>(row)];
      assert(token >= 0 && token < table_.shape[0]);
      scale_row({.from = static_cast<const std::byte*>(table_.data) + token * row_bytes,
                 .to = out.row(row),
                 .size = size,
                 .multiplier = multiplier_,
                 .round = context.precision() == Precision::bf16});
    }
  });
}

}  // namespace asynct
