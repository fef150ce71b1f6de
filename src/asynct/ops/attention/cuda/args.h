#pragma once

#include <cuda.h>

#include <cstdint>

// Plain structs that kernels take by value; all pointers are device memory.
namespace asynct::cuda {

/// Keys, or values, of one layer: [blocks, kv_head, token in block, D] with any strides, in elements. D is
/// contiguous; rows start at multiples of 16 bytes.
struct KvView {
  const void* data = nullptr;
  std::int64_t block_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

/// Of a query head: A = clamp(slope * x + bias - sigma * (sum of the pool's r), 0, most), x = <q, k>, r =
/// max(x, pool_floor): AttentionConfig's formula with scale and pool size multiplied in; gain is applied to
/// the sum.
struct HeadFactors {
  float slope;
  float bias;
  float sigma;
  float gain;
};

/// What all heads have in common.
struct WeightForm {
  float pool_floor = 0;  // or -infinity without pool_relu
  float most = 1;        // exact in the element type
  /// Slope 1 and bias 0 everywhere and a scale that is a power of two: weights are left divided by it, so
  /// that they take one instruction and the queries none; `most` is 1 / scale then and gain has the scale.
  bool plain = false;
};

/// A piece of decode: the query rows of one KV head of one sequence times one chunk of keys.
struct alignas(16) DecodeUnit {
  std::int32_t sequence;
  std::int32_t kv_head;
  std::int32_t chunk;
  std::int32_t first_slot;  // of the sequence's and head's chunks among the partial sums
  std::int32_t first_row;   // the sequence's rows in this step, and its keys
  std::int32_t tokens;
  std::int32_t context;
  std::int32_t unused;
};

struct DecodeArgs {
  CUtensorMap key_map;          // kTileKeys rows of a block, or all of a smaller one; dims: column, token, 64
                                // columns, head, block
  CUtensorMap halo_map;         // kHaloKeys rows of 64 columns
  const void* query = nullptr;  // [T, H, D], rows query_stride apart
  void* out = nullptr;          // likewise
  std::int64_t query_stride = 0;
  std::int64_t out_stride = 0;
  KvView value;
  const std::int32_t* block_table = nullptr;  // [B, max_blocks]
  const HeadFactors* factors = nullptr;       // [H]
  const DecodeUnit* units = nullptr;
  float* partial = nullptr;          // [slots, kDecodeRows, D]
  std::uint32_t* arrived = nullptr;  // [2, slots], zero before and after: chunks of a span, spans of a unit
  std::int32_t slots = 0;
  std::int32_t unit_count = 0;
  std::int32_t max_blocks = 0;
  std::int32_t block_shift = 4;  // log2 of tokens a block
  std::int32_t group = 1;        // query heads a KV head
  std::int32_t most_rows = 1;    // of a unit: group times tokens, at most kDecodeRows
  WeightForm form;
  bool skip_values = false;  // fetch only value rows that some query row gives weight; changes no result
  /// Of the layer, may be null: the launch adds the keys of its units to the upper 32 bits, and those among
  /// them that some query row gives weight to the lower ones (ValueDensity).
  std::uint64_t* value_count = nullptr;
};

/// A piece of prefill: rows of one KV head and some tokens of a sequence times all keys that they see.
struct alignas(16) PrefillUnit {
  std::int32_t sequence;
  std::int32_t kv_head;
  std::int32_t first_row;  // the sequence's rows in this step
  std::int32_t tokens;
  std::int32_t token;           // the unit's first
  std::int32_t first_position;  // its position
  std::int32_t last_key;        // keys that the unit's last row sees, at least 1
  std::int32_t section;         // of units whose keys and values stay in the L2 together
};

struct PrefillArgs {
  CUtensorMap query_map;  // dims: 64 columns, head of the group, row, half, KV head; box: a unit
  CUtensorMap
      key_map;  // 16 keys of 64 columns, permuted; dims: column and head and token of a block, e, t, j, block
  CUtensorMap value_map;
  void* out = nullptr;  // [T, H, D]
  std::int64_t out_stride = 0;
  KvView key;
  KvView value;
  const std::int32_t* block_table = nullptr;  // [B, max_blocks]
  const HeadFactors* factors = nullptr;       // [H]
  const PrefillUnit* units = nullptr;
  std::uint32_t* taken = nullptr;  // [2], zero before and after: units that blocks came for, blocks that end
  float* span_sums = nullptr;      // [multiprocessors, rows of a unit, D]: for contexts of several spans
  std::int32_t unit_count = 0;
  std::int32_t max_blocks = 0;
  std::int32_t block_shift = 4;
  std::int32_t group_shift = 0;  // log2 of query heads a KV head, at most 4
  WeightForm form;
};

}  // namespace asynct::cuda
