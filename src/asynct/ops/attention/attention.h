#pragma once

#include <cstdint>
#include <vector>

#include "asynct/ops/attention/head_factors.h"
#include "asynct/ops/context.h"
#include "asynct/ops/kv_layer.h"
#include "asynct/ops/step_batch.h"

namespace asynct {

enum class AttentionKind { asynci, softmax };  // uniaffine is asynci with sigma 0

/// What is common to all layers.
struct AttentionConfig {
  AttentionKind kind = AttentionKind::asynci;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  float scale = 0;
  std::int32_t pool_size = 3;  // 1, 2, 3 or 5: key j is pooled with its pool_size - 1 predecessors
  bool pool_relu = true;
};

/// Per query head, each [H]; asynci only. A = gain * clamp(slope * S + bias - sigma * P, 0, 1).
struct AttentionHeadParams {
  std::vector<float> sigma;
  std::vector<float> slope;  // empty = 1
  std::vector<float> bias;   // empty = 0
  std::vector<float> gain;   // empty = 1
};

/// skip_safe: S <= 0 implies A = 0, so the value row need not be read. dead: A = 0 always. dense: neither.
enum class HeadClass { skip_safe, dead, dense };
HeadClass classify_head(const AttentionConfig& config, const AttentionHeadParams& params, std::int32_t head);

/// The work of one step's attention, made once and shared by all layers: units of one KV head times some
/// query rows times whole chunks of keys, decode before prefill, longest first. Reuses its memory.
class AttentionPlan {
 public:
  void build(const AttentionConfig& config, const StepBatch& batch, int threads);

  struct Unit {
    std::int32_t sequence = 0;
    std::int32_t kv_head = 0;
    std::int32_t row_begin = 0;  // rows of the sequence in this step
    std::int32_t row_end = 0;
    std::int32_t chunk_begin = 0;  // chunks of kAttentionChunk keys, aligned to absolute key position
    std::int32_t chunk_end = 0;
    std::int32_t partial =
        -1;  // where to leave the sum when several units share the rows; -1: write the output
  };
  std::vector<Unit> units;

  /// Rows whose chunks went to several units: their sums lie in slots [partial, partial + chunks), one a
  /// chunk.
  struct Reduction {
    std::int32_t sequence = 0;
    std::int32_t kv_head = 0;
    std::int32_t row_begin = 0;
    std::int32_t row_end = 0;
    std::int32_t partial = 0;
    std::int32_t chunks = 0;
  };
  std::vector<Reduction> reductions;
  std::int32_t partial_slots = 0;  // of kSplitRows rows each

  /// The most that partial_slots can be with `threads` threads and contexts up to `max_context`.
  static std::int64_t most_partial_slots(int threads, std::int64_t max_context);

  /// Only sequences with one row are split.
  static constexpr std::int32_t kSplitRows = 1;
};

/// Keys are summed in chunks of this many, aligned to absolute key position, chunk sums added in order: a
/// row's result then depends on its own keys only, whatever the batch, the split or the prefill chunk.
inline constexpr std::int32_t kAttentionChunk = 256;

/// o[row, h] = sum_{j <= position} A_j v_j over the paged cache (which already holds this step's keys). See
/// AttentionConfig for A; softmax for the twin. Value rows whose weight is exactly zero for all query heads
/// of a KV group are not read.
class Attention {
 public:
  Attention(const AttentionConfig& config, AttentionHeadParams params);

  const AttentionConfig& config() const { return config_; }
  const AttentionHeadParams& params() const { return params_; }

  /// What run() takes for contexts up to `max_context`.
  static ScratchSize scratch_size(const OpContext& context, const AttentionConfig& config,
                                  std::int64_t max_context);

  /// q [T, H * D] (normed, rotated), out [T, H * D]; rounds out in bf16 precision. At most two parallel
  /// regions.
  void run(OpContext& context, const AttentionPlan& plan, const StepBatch& batch, const KvLayer& kv,
           ConstMatrix q, Matrix out) const;

 private:
  struct Run;

  AttentionConfig config_;
  AttentionHeadParams params_;
  std::vector<attention::HeadFactors> factors_;  // [H]
  std::vector<std::int32_t> live_;               // query heads that are not dead, by KV head
  std::vector<std::int32_t> live_begin_;         // [Hk + 1] into live_
};

}  // namespace asynct
