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

/// Of a query head: A = clamp(slope * x + bias - sigma * (relu(x) + relu(x of earlier keys)), 0, 1) for x =
/// query_scale * <q, k>: AttentionConfig's formula with scale and pool size multiplied in; gain is applied to
/// the sum.
struct HeadFactors {
  float slope;
  float bias;
  float sigma;
  float gain;
};

/// A piece of decode: the query rows of one KV head of one sequence times some chunks of keys within a span.
struct alignas(16) DecodeUnit {
  std::int32_t sequence;
  std::int32_t kv_head;
  std::int32_t chunk;  // the first
  std::int32_t chunks;
  std::int32_t first_slot;  // of the sequence's and head's chunks among the partial sums
  std::int32_t leading;     // chunks of the unit that begins the span
  std::int32_t first_row;   // the sequence's rows in this step, and its keys
  std::int32_t tokens;
  std::int32_t context;
  std::int32_t unused[3];
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
  float query_scale = 1;         // a power of two, multiplied into the queries
  std::int32_t most_rows = 1;    // of a unit: group times tokens, at most kDecodeRows
  float pool_floor = 0;          // scores below it are pooled as it: 0, or -infinity without pool_relu
};

/// A piece of prefill: rows of one KV head and some tokens of a sequence times all keys that they see.
struct PrefillUnit {
  std::int32_t sequence;
  std::int32_t kv_head;
  std::int32_t first_row;  // the sequence's rows in this step
  std::int32_t tokens;
  std::int32_t token;           // the unit's first
  std::int32_t first_position;  // its position
  std::int32_t last_key;        // keys that the unit's last row sees
  std::int32_t unused;
};

struct PrefillArgs {
  CUtensorMap query_map;  // dims: 64 columns, head of the group, row, half, KV head; box: 128 rows and heads
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
  std::int32_t unit_count = 0;
  std::int32_t max_blocks = 0;
  std::int32_t block_shift = 4;
  std::int32_t group = 1;  // a power of two up to 16
  float query_scale = 1;   // a power of two, multiplied into the queries
  bool plain = false;      // all heads have slope 1 and bias 0 then
  float pool_floor = 0;
};

}  // namespace asynct::cuda
