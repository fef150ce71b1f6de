#pragma once

#include <cstdint>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/python/attention_room.h"
#include "asynct/python/tensor_ref.h"

// Attention's tensors, and whether they fit a step: all of it is checked before anything is launched.
namespace asynct::extension {

/// Device memory of a step that its launches share.
struct StepMemory {
  TensorRef units;      // int32 [unit_rows(), 8], what AttentionStep::write_units() left
  TensorRef places;     // the block table, int32 [sequences, any]; of keys in one piece where each sequence's
                        // first lies, int64 [sequences]
  TensorRef partial;    // fp32 [partial_floats()]
  TensorRef arrived;    // int32 [arrived_words()], zeros at first
  TensorRef span_sums;  // fp32 [span_sum_floats()]
  TensorRef value_count;  // int64 [1], zero at first: where values are skipped by density
};

/// A layer's tensors and factors.
struct LayerTensors {
  TensorRef query;  // [rows, heads, head_dim], rows any stride
  TensorRef
      key;  // [blocks, block_size, kv_heads, head_dim], any strides; in one piece [keys, kv_heads, head_dim]
  TensorRef value;    // likewise
  TensorRef factors;  // fp32 [heads, 4]: cuda::HeadFactors
  TensorRef out;      // as query
  cuda::WeightForm form;
  std::int32_t pool_size = 3;
};

/// Error for tensors that do not fit; sets strides as expect_rows() does. `key_blocks`: blocks of the cache
/// that the plan names, or keys in one piece, as far as the host knows them.
void check_layer(LayerTensors& layer, const StepRoom& room, std::int64_t key_blocks);

/// Error for memory that is too small or elsewhere. `counts_values`: it has the counter.
void check_memory(const StepMemory& memory, const StepRoom& room, bool counts_values, int device);

}  // namespace asynct::extension
