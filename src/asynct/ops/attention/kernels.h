#pragma once

#include <cstddef>
#include <cstdint>

#include "asynct/ops/attention/head_factors.h"

// Private to Attention: what the driver (attention.cc) and the kernels of each ISA agree on. Included by
// units compiled with -m flags, hence no inline functions here.
namespace asynct::attention {

/// Keys whose scores are one row of vectors in the cache: a group lies in one block, or in a packed tile.
constexpr int kGroupKeys = 16;

/// Keys taken at once through scores, weights and values. 64 keys and values of 64 floats each are 32 KB:
/// they stay in L1 while all queries of a unit pass over them.
constexpr int kSpanKeys = 64;

/// Scores of earlier keys that pooling may need (pool sizes up to 5).
constexpr int kHalo = 4;

/// Queries (rows times heads of a group) a register tile holds at most.
constexpr int kTileQueries = 6;

/// Queries of a prefill unit: enough to pay for reading, and widening, a span of keys and values once.
constexpr int kUnitQueries = 48;

/// Keys or values of one KV head.
struct HeadPages {
  const void* data;
  bool bf16;
  std::int64_t block_stride;  // in elements, like the others
  std::int64_t token_stride;
  std::int64_t dim_stride;
};

/// The running sum of each query: sum_j A_j v_j [queries, padded_dim]; softmax also keeps the largest score
/// and the sum of exponentials.
struct Sums {
  float* values;
  float* largest;  // [queries]
  float* total;    // [queries]
};

/// Memory of one worker.
struct Workspace {
  const float** queries;  // [queries] pointers into q
  float* halo;            // [queries, kHalo] scores of the last keys of the span before
  Sums chunk;
  Sums all;
  float* keys;    // [kSpanKeys / kGroupKeys, head_dim, kGroupKeys] packed span
  float* values;  // [kSpanKeys, padded_dim]
  float* spare;   // [padded_dim]
};

/// One unit of the plan: `rows` rows of a sequence times the `live` query heads of one KV head, over whole
/// chunks of keys. Query n is row n / live, head heads[n % live].
struct UnitArgs {
  // What is asked.
  const float* q;  // first row, [rows, q_stride]
  std::int64_t q_stride;
  const std::int32_t* heads;  // [live]
  int live;
  int rows;
  std::int64_t first_position;  // of the first row; the others follow
  int head_dim;
  int padded_dim;  // head_dim rounded up to 16
  // The arithmetic.
  bool softmax;
  bool pool_relu;
  int pool_size;
  float scale;
  const HeadFactors* factors;  // [H]
  // The cache.
  HeadPages key;
  HeadPages value;
  const std::int32_t* blocks;
  int block_shift;  // log2(block size)
  std::int64_t chunk_keys;
  std::int64_t chunk_begin;
  std::int64_t chunk_end;
  // The result: `out`, or the sums of each chunk, chunk after chunk, when other units share the rows.
  float* out;  // first row, [rows, out_stride]
  std::int64_t out_stride;
  bool round;      // out to bf16
  float* partial;  // [chunks, partial_stride] or null; values, then largest, then total
  std::int64_t partial_stride;
  Workspace work;
};

struct KernelTable {
  void (*run_unit)(const UnitArgs&);
  /// Adds the partial sums of chunks [chunk_begin, chunk_end) in order and writes `out`.
  void (*reduce)(const UnitArgs&);
};

extern const KernelTable kScalarKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

}  // namespace asynct::attention
