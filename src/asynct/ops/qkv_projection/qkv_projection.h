#pragma once

#include <optional>

#include "asynct/ops/kv_layer.h"
#include "asynct/ops/linear/linear.h"
#include "asynct/ops/norm/norm.h"
#include "asynct/ops/rope/rope.h"
#include "asynct/ops/step_batch.h"

namespace asynct {

struct QkvProjectionParams {
  Linear qkv;                  // d -> (H + 2 Hk) * D, rows of q, then k, then v
  std::optional<Norm> q_norm;  // over D, shared by heads, before RoPE
  std::optional<Norm> k_norm;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
};

/// Projects, norms q and k, rotates them and writes k and v into the cache (rounded to the cache's dtype), in
/// one parallel region. What remains for the caller is q.
class QkvProjection {
 public:
  explicit QkvProjection(QkvProjectionParams params) : params_(std::move(params)) {}

  /// x [T, d]; qkv [T, (H + 2 Hk) * D] scratch whose first H * D columns are q afterwards (rounded in bf16
  /// precision). Slots of -1 are not written.
  void run(OpContext& context, const Rope& rope, const StepBatch& batch, ConstMatrix x, Matrix qkv,
           const KvLayer& cache) const;

  std::size_t packed_bytes() const { return params_.qkv.packed_bytes(); }

 private:
  QkvProjectionParams params_;
};

}  // namespace asynct
