#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/python/tensor_ref.h"

namespace asynct::python {

struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;
};

/// both: sequences of few rows at the front of a step decode, the others prefill.
enum class AttentionKernels { decode, prefill, both };

/// The most of a step whose launches are captured in a CUDA graph.
struct StepLimits {
  std::int32_t sequences = 0;
  std::int32_t tokens = 0;           // query rows of all sequences
  std::int32_t sequence_tokens = 1;  // of one that decodes
  std::int32_t context = 0;
};

/// A step's lengths on the host.
struct StepLengths {
  std::span<const std::int32_t> query_start;     // [sequences + 1]
  std::span<const std::int32_t> context_length;  // [sequences], the step's rows included
  std::int32_t table_width = 0;                  // blocks of a row of the block table
  std::span<const std::int32_t> block_table;  // [sequences, table_width], or empty: known to the device only
};

/// Device memory of a step that its launches share.
struct StepMemory {
  TensorRef units;        // int32 [unit_rows(), 8], what write_units() left
  TensorRef block_table;  // int32 [sequences, any]
  TensorRef partial;      // fp32 [partial_floats()]
  TensorRef arrived;      // int32 [arrived_words()], zeros at first
  TensorRef span_sums;    // fp32 [span_sum_floats()]
};

/// A layer's tensors and factors.
struct LayerTensors {
  TensorRef query;    // [rows, heads, head_dim], rows any stride
  TensorRef key;      // [blocks, block_size, kv_heads, head_dim], any strides
  TensorRef value;    // likewise
  TensorRef factors;  // fp32 [heads, 4]: cuda::HeadFactors
  TensorRef out;      // as query
  cuda::WeightForm form;
  std::int32_t pool_size = 3;
};

/// The attention of one step: a plan on the host, and its launches for each layer.
class AttentionStep {
 public:
  AttentionStep(const AttentionShape& shape, AttentionKernels kernels, bool skip_values);

  /// From now on every launch has room for steps up to these limits, and is the same one whatever the plan:
  /// units that a step lacks are empty ones.
  void fix(const StepLimits& limits);

  /// Error for lengths that contradict each other, the table or the limits.
  void build(const StepLengths& lengths);

  std::int64_t unit_rows() const;
  void write_units(std::span<std::int32_t> to) const;
  std::int64_t partial_floats() const;
  std::int64_t arrived_words() const;
  std::int64_t span_sum_floats(std::int32_t multiprocessors) const;
  std::int32_t tokens() const { return tokens_; }
  std::int32_t decode_units() const { return static_cast<std::int32_t>(decode_.units.size()); }
  std::int32_t prefill_units() const { return static_cast<std::int32_t>(prefill_.units.size()); }

  /// Error for tensors that do not fit the step; nothing is launched then. `together`: decode and prefill as
  /// one launch where it takes them.
  void run(const StepMemory& memory, const LayerTensors& layer, bool together, cudaStream_t stream) const;

 private:
  void check_lengths(const StepLengths& lengths);
  std::size_t decoding(const StepLengths& lengths) const;
  void check_memory(const StepMemory& memory, int device) const;
  void check_layer(LayerTensors& layer) const;
  cuda::DecodeArgs decode_args(const StepMemory& memory, const LayerTensors& layer) const;
  cuda::PrefillArgs prefill_args(const StepMemory& memory, const LayerTensors& layer) const;

  AttentionShape shape_;
  std::int32_t group_;
  AttentionKernels kernels_;
  bool skip_values_;
  bool fixed_ = false;
  StepLimits limits_;

  cuda::DecodePlan decode_;
  cuda::PrefillPlan prefill_;
  std::int32_t decode_room_ = 0;  // units, empty ones too
  std::int32_t prefill_room_ = 0;
  std::int32_t slots_ = 0;
  std::int32_t sequences_ = 0;
  std::int32_t tokens_ = 0;
  std::int32_t longest_ = 0;      // context
  std::int32_t most_tokens_ = 1;  // of a sequence that decodes
  std::int32_t last_block_ = -1;  // the greatest of the table, where that is known
};

}  // namespace asynct::python
