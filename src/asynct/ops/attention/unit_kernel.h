#pragma once

#include "asynct/ops/attention/span_kernel.h"
#include "asynct/ops/attention/weight_kernel.h"

// One unit of the plan, and the reduction of units that share rows. Keys go by in spans; each chunk of keys
// has sums of its own, which are added to the rest in the order of chunks: so a row's bits are the same in
// one piece or many.
namespace asynct::attention {
namespace {

inline int queries(const UnitArgs& unit) { return unit.rows * unit.live; }
inline std::int64_t position(const UnitArgs& unit, int query) {
  return unit.first_position + query / unit.live;
}
inline std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

inline void clear(const UnitArgs& unit, const Sums& sums) {
  const std::int64_t count = std::int64_t{queries(unit)} * unit.padded_dim;
  for (std::int64_t i = 0; i < count; i += Vec::kLanes) Vec::zero().store(sums.values + i);
  for (int n = 0; n < queries(unit); ++n) {
    sums.largest[n] = kNoScore;
    sums.total[n] = 0;
  }
}

/// into += from, for query n; softmax first brings both to the larger of their largest scores.
inline void merge(const UnitArgs& unit, int n, const Sums& from, const Sums& into) {
  Vec keep = Vec::all(1);
  Vec take = Vec::all(1);
  if (unit.softmax) {
    if (from.total[n] == 0) return;  // no key of the chunk is visible
    const float largest = from.largest[n] > into.largest[n] ? from.largest[n] : into.largest[n];
    const float kept = into.total[n] == 0 ? 1.0F : exp_of_nonpositive(into.largest[n] - largest);
    const float taken = exp_of_nonpositive(from.largest[n] - largest);
    into.total[n] = into.total[n] * kept + from.total[n] * taken;
    into.largest[n] = largest;
    keep = Vec::all(kept);
    take = Vec::all(taken);
  }
  const std::int64_t first = std::int64_t{n} * unit.padded_dim;
  for (std::int64_t i = first; i < first + unit.padded_dim; i += Vec::kLanes) {
    const Vec sum = keep * Vec::load(into.values + i) + take * Vec::load(from.values + i);
    sum.store(into.values + i);
  }
}

inline void write_out(const UnitArgs& unit) {
  for (int n = 0; n < queries(unit); ++n) {
    const float* const values = unit.work.all.values + std::int64_t{n} * unit.padded_dim;
    const Vec factor = Vec::all(unit.softmax ? 1.0F / unit.work.all.total[n] : 1.0F);
    float* const out =
        unit.out + n / unit.live * unit.out_stride + std::int64_t{unit.heads[n % unit.live]} * unit.head_dim;
    for (int d = 0; d < unit.head_dim; d += Vec::kLanes) {
      const Vec value = Vec::load(values + d) * factor;
      (unit.round ? round_lanes_to_bf16(value) : value)
          .store_first(out + d, least(Vec::kLanes, unit.head_dim - d));
    }
  }
}

template <class T>
using ScoreKernel = void (*)(const float* const*, int, const Span<T>&, int, float, float*);
template <class T>
constexpr ScoreKernel<T> kScoreKernels[kTileQueries] = {score_groups<1, T>, score_groups<2, T>,
                                                        score_groups<3, T>, score_groups<4, T>,
                                                        score_groups<5, T>, score_groups<6, T>};
template <class T>
using ValueKernel = void (*)(const float*, std::uint64_t, const T* const*, int, float* const*);
template <class T>
constexpr ValueKernel<T> kValueKernels[kTileQueries] = {add_values<1, T>, add_values<2, T>, add_values<3, T>,
                                                        add_values<4, T>, add_values<5, T>, add_values<6, T>};

/// A register tile does this many times the work of the sparse sums in the same time.
constexpr double kSparseGain = 1.4;

/// So few queries that reading keys and values takes longer than the arithmetic on them.
inline bool memory_bound(const UnitArgs& unit) { return queries(unit) <= 2 * kTileQueries; }

/// Queries [first, first + count) of a unit over one span.
struct Tile {
  int first;
  int count;
};

/// Calls body(tile) for the queries cut into tiles of nearly equal size.
template <class Body>
void for_each_tile(const UnitArgs& unit, Body body) {
  const int total = queries(unit);
  const int tiles = (total + kTileQueries - 1) / kTileQueries;
  for (int t = 0; t < tiles; ++t) {
    const int first = total * t / tiles;
    body(Tile{first, total * (t + 1) / tiles - first});
  }
}

/// Weights of one query in place of its scores; returns the keys whose weight is not zero.
inline std::uint64_t weigh(const UnitArgs& unit, PooledWeights pooled, int n, std::int64_t visible,
                           int groups, float* scores) {
  const int vecs = groups * kGroupVecs;
  if (unit.softmax) {
    if (visible <= 0) {
      for (int v = 0; v < vecs; ++v) Vec::zero().store(scores + v * Vec::kLanes);
      return 0;
    }
    float rescale = 1;
    const Sums& sums = unit.work.chunk;
    const std::uint64_t needed =
        softmax_weights(scores, vecs, visible, sums.largest[n], sums.total[n], rescale);
    float* const values = sums.values + std::int64_t{n} * unit.padded_dim;
    if (rescale != 1)
      for (int d = 0; d < unit.padded_dim; d += Vec::kLanes)
        (Vec::load(values + d) * Vec::all(rescale)).store(values + d);
    return needed;
  }
  float* const halo = unit.work.halo + std::int64_t{n} * kHalo;
  for (int i = 0; i < kHalo; ++i) {
    scores[i - kHalo] = halo[i];
    if (groups * kGroupKeys == kSpanKeys) halo[i] = scores[kSpanKeys - kHalo + i];
  }
  return pooled(scores, vecs, visible, unit.factors[unit.heads[n % unit.live]]);
}

/// A tile's weights over one span and the value rows they need.
template <class T>
struct WeighedTile {
  Tile tile;
  Span<T> span;
  std::uint64_t needed[kTileQueries + 1];  // by each query
  std::uint64_t by_any;
  int by_each;
  alignas(64) float buffer[kTileQueries * kScoreStride];

  float* scores() { return buffer + kGroupKeys; }
};

/// False: the tile sees no key of the span.
template <class T>
bool weigh_tile(const UnitArgs& unit, PooledWeights pooled, const Span<T>& span, std::int64_t begin,
                Tile tile, WeighedTile<T>& weighed) {
  const std::int64_t visible_to_last = position(unit, tile.first + tile.count - 1) + 1 - begin;
  if (visible_to_last <= 0) return false;
  const auto keys = static_cast<int>(least(visible_to_last, kSpanKeys));
  const int groups = (keys + kGroupKeys - 1) / kGroupKeys;
  float* const scores = weighed.scores();
  kScoreKernels<T>[tile.count - 1](unit.work.queries + tile.first, unit.head_dim, span, groups, unit.scale,
                                   scores);
  weighed.tile = tile;
  weighed.span = span;
  weighed.by_any = 0;
  weighed.by_each = 0;
  for (int m = 0; m < tile.count; ++m) {
    const int n = tile.first + m;
    const std::uint64_t needed =
        weigh(unit, pooled, n, position(unit, n) + 1 - begin, groups, scores + m * kScoreStride);
    weighed.needed[m] = needed;
    weighed.by_any |= needed;
    weighed.by_each += __builtin_popcountll(needed);
  }
  weighed.needed[tile.count] = 0;
  if (memory_bound(unit)) prefetch_rows(unit, span, weighed.by_any);
  return true;
}

template <class T>
void add_tile(const UnitArgs& unit, WeighedTile<T>& weighed) {
  const Tile tile = weighed.tile;
  float* sums[kTileQueries + 1];
  for (int m = 0; m < tile.count; ++m)
    sums[m] = unit.work.chunk.values + std::int64_t{tile.first + m} * unit.padded_dim;
  // A register tile multiplies by the zeros of its other queries, but reads a value row once for all.
  if (kSparseGain * weighed.by_each >= tile.count * __builtin_popcountll(weighed.by_any) || tile.count == 1)
    return kValueKernels<T>[tile.count - 1](weighed.scores(), weighed.by_any, weighed.span.rows,
                                            unit.padded_dim, sums);
  const float* weights[kTileQueries + 1];
  for (int m = 0; m < tile.count; ++m) weights[m] = weighed.scores() + m * kScoreStride;
  weights[tile.count] = weighed.scores();  // an odd last query is paired with one that needs nothing
  sums[tile.count] = unit.work.spare;
  for (int m = 0; m < tile.count; m += 2)
    add_sparse_values(weights + m, weighed.needed + m, weighed.span.rows, unit.padded_dim, sums + m);
}

/// The spans of a chunk from `begin` to `end`.
template <class T, class MakeSpan>
void run_spans(const UnitArgs& unit, PooledWeights pooled, std::int64_t begin, std::int64_t end,
               MakeSpan make_span) {
  WeighedTile<T> weighed;
  for (; begin < end; begin += kSpanKeys) {
    const Span<T> span = make_span(begin, static_cast<int>(least(kSpanKeys, end - begin)));
    for_each_tile(unit, [&](Tile tile) {
      if (weigh_tile(unit, pooled, span, begin, tile, weighed)) add_tile(unit, weighed);
    });
  }
}

/// The same for one tile and spans in place: values of a span are added when the scores of the next one are
/// known, and their rows are fetched meanwhile. Not for softmax, whose scores may rescale the sums.
template <class T, class MakeSpan>
void run_spans_ahead(const UnitArgs& unit, PooledWeights pooled, std::int64_t begin, std::int64_t end,
                     MakeSpan make_span) {
  if (queries(unit) < 1) return;
  WeighedTile<T> slots[2];
  WeighedTile<T>* before = nullptr;
  WeighedTile<T>* next = slots;
  for (; begin < end; begin += kSpanKeys) {
    const Span<T> span = make_span(begin, static_cast<int>(least(kSpanKeys, end - begin)));
    if (!weigh_tile(unit, pooled, span, begin, Tile{0, queries(unit)}, *next)) break;
    if (before != nullptr) add_tile(unit, *before);
    before = next;
    next = before == slots ? slots + 1 : slots;
  }
  if (before != nullptr) add_tile(unit, *before);
}

/// Scores of the last keys before `begin`, for pooling across the border of a unit.
template <class T, class MakeSpan>
void load_halo(const UnitArgs& unit, std::int64_t begin, MakeSpan make_span) {
  for (int i = 0; i < queries(unit) * kHalo; ++i) unit.work.halo[i] = 0;
  if (begin == 0 || unit.softmax || unit.pool_size == 1) return;
  const Span<T> span = make_span(begin - kGroupKeys, kGroupKeys);
  for_each_tile(unit, [&](Tile tile) {
    alignas(64) float scores[kTileQueries * kScoreStride];
    kScoreKernels<T>[tile.count - 1](unit.work.queries + tile.first, unit.head_dim, span, 1, unit.scale,
                                     scores);
    for (int m = 0; m < tile.count; ++m)
      for (int i = 0; i < kHalo; ++i)
        unit.work.halo[(tile.first + m) * kHalo + i] = scores[m * kScoreStride + kGroupKeys - kHalo + i];
  });
}

inline Sums partial_sums(const UnitArgs& unit, std::int64_t chunk) {
  const std::int64_t n = queries(unit);
  float* const values = unit.partial + (chunk - unit.chunk_begin) * unit.partial_stride;
  return {values, values + n * unit.padded_dim, values + n * (unit.padded_dim + 1)};
}

/// kInPlace: spans stay valid when the next one is made.
template <class T, bool kInPlace, class MakeSpan>
void run_chunks(const UnitArgs& base, MakeSpan make_span) {
  UnitArgs unit = base;
  const PooledWeights pooled =
      unit.pool_relu ? pooled_weights_of<true>(unit.pool_size) : pooled_weights_of<false>(unit.pool_size);
  const std::int64_t end = position(unit, queries(unit) - 1) + 1;
  load_halo<T>(unit, unit.chunk_begin * unit.chunk_keys, make_span);
  clear(unit, unit.work.all);
  for (std::int64_t chunk = unit.chunk_begin; chunk < unit.chunk_end; ++chunk) {
    if (unit.partial != nullptr) unit.work.chunk = partial_sums(unit, chunk);
    clear(unit, unit.work.chunk);
    const std::int64_t chunk_end = least(end, (chunk + 1) * unit.chunk_keys);
    if (kInPlace && queries(unit) <= kTileQueries && !unit.softmax)
      run_spans_ahead<T>(unit, pooled, chunk * unit.chunk_keys, chunk_end, make_span);
    else
      run_spans<T>(unit, pooled, chunk * unit.chunk_keys, chunk_end, make_span);
    if (unit.partial != nullptr) continue;
    for (int n = 0; n < queries(unit); ++n) merge(unit, n, unit.work.chunk, unit.work.all);
  }
  if (unit.partial == nullptr) write_out(unit);
}

template <class T>
void run_in_place(const UnitArgs& unit) {
  const std::int64_t end = least(unit.chunk_end * unit.chunk_keys, position(unit, queries(unit) - 1) + 1);
  run_chunks<T, true>(unit, [&](std::int64_t begin, int keys) {
    const std::int64_t next = begin + kSpanKeys;
    if (memory_bound(unit) && next < end)
      prefetch_keys<T>(unit, next, static_cast<int>(least(kSpanKeys, end - next)));
    return span_in_place<T>(unit, begin, keys);
  });
}

void run_unit(const UnitArgs& unit) {
  for (int n = 0; n < queries(unit); ++n)
    unit.work.queries[n] =
        unit.q + n / unit.live * unit.q_stride + std::int64_t{unit.heads[n % unit.live]} * unit.head_dim;
  const bool in_place = group_in_place(unit) && row_in_place(unit);
  // With many queries, widening bf16 once beats widening it again for every tile.
  const bool widen = !memory_bound(unit);
  if (in_place && !unit.key.bf16 && !unit.value.bf16) return run_in_place<float>(unit);
  if (in_place && unit.key.bf16 && unit.value.bf16 && !widen) return run_in_place<std::uint16_t>(unit);
  run_chunks<float, false>(unit,
                           [&](std::int64_t begin, int keys) { return packed_span(unit, begin, keys); });
}

void reduce(const UnitArgs& unit) {
  clear(unit, unit.work.all);
  for (std::int64_t chunk = unit.chunk_begin; chunk < unit.chunk_end; ++chunk)
    for (int n = 0; n < queries(unit); ++n) merge(unit, n, partial_sums(unit, chunk), unit.work.all);
  write_out(unit);
}

constexpr KernelTable kTable = {run_unit, reduce};

}  // namespace
}  // namespace asynct::attention
