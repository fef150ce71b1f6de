#include "asynct/ops/qkv_projection/qkv_projection.h"

#include <cassert>

#include "asynct/ops/rounding.h"

namespace asynct {
namespace {

/// One head vector [D] into its slot, rounded to the pages' dtype.
void write_slot(const KvPages& pages, std::int64_t block, std::int64_t head, std::int64_t token,
                const float* vector, std::int64_t dims) {
  const std::int64_t first = pages.offset(block, head, token, 0);
  if (pages.dtype == DType::f32) {
    float* const to = static_cast<float*>(pages.data) + first;
    for (std::int64_t d = 0; d < dims; ++d) to[d * pages.dim_stride] = vector[d];
  } else {
    assert(pages.dtype == DType::bf16);
    Bf16* const to = static_cast<Bf16*>(pages.data) + first;
    for (std::int64_t d = 0; d < dims; ++d) to[d * pages.dim_stride] = to_bf16(vector[d]);
  }
}

}  // namespace

void QkvProjection::run(OpContext& context, const Rope& rope, const StepBatch& batch, ConstMatrix x,
                        Matrix qkv, const KvLayer& cache) const {
  const std::int64_t dims = params_.head_dim;
  const std::int64_t q_size = params_.heads * dims;
  const std::int64_t k_size = params_.kv_heads * dims;
  assert(qkv.cols == q_size + 2 * k_size && cache.head_dim == dims && cache.kv_heads == params_.kv_heads);

  const auto norm_and_rotate = [&](const std::optional<Norm>& norm, float* head, std::int64_t position) {
    if (norm) norm->apply(context, head, head, false);
    rope.apply(context, head, position);
  };
  const auto finish_rows = [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = batch.positions[static_cast<std::size_t>(row)];
      float* const q = qkv.row(row);
      for (std::int64_t h = 0; h < params_.heads; ++h)
        norm_and_rotate(params_.q_norm, q + h * dims, position);
      round_if_bf16(context.precision(), q, q_size);
    }
    // Head by head, so that neighbouring tokens fill the cache lines of a key page one after the other.
    for (std::int64_t h = 0; h < params_.kv_heads; ++h)
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t slot = batch.slot_mapping[static_cast<std::size_t>(row)];
        if (slot < 0) continue;
        const std::int64_t block = slot / cache.block_size;
        const std::int64_t token = slot % cache.block_size;
        float* const key = qkv.row(row) + q_size + h * dims;
        norm_and_rotate(params_.k_norm, key, batch.positions[static_cast<std::size_t>(row)]);
        write_slot(cache.key, block, h, token, key, dims);
        write_slot(cache.value, block, h, token, key + k_size, dims);
      }
  };
  params_.qkv.run(context, x, qkv, RowEpilogue(finish_rows));
}

}  // namespace asynct
