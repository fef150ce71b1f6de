#pragma once

#include "asynct/ops/attention/kernels.h"

// The two products of attention as register tiles, written once over Vec; a unit includes a simd/math_<isa>.h
// before this. A lane sums in one order, over dimensions for scores and over keys for values, whatever the
// tile: results do not depend on how queries are grouped.
namespace asynct::attention {
namespace {

constexpr int kGroupVecs = kGroupKeys / Vec::kLanes;
constexpr int kWide =
    Vec::kLanes == 16 ? 4 : 1;  // groups of a tile with many queries: 24 of 32, 12 of 16 sums

/// Floats between the score rows of two queries, the halo in front included.
constexpr int kScoreStride = kGroupKeys + kSpanKeys;

/// Keys and values of a span as the kernels want them.
template <class T>
struct Span {
  const T* groups[kSpanKeys / kGroupKeys];  // kGroupKeys keys of dimension 0
  std::int64_t dim_stride;                  // from one dimension to the next
  const T* rows[kSpanKeys];                 // value rows
};

/// scores[m][key] = scale * <q[m], key> for the keys of kGroups groups.
template <int kQueries, int kGroups, class T>
void score_tile(const float* const* q, int dims, const T* const* groups, std::int64_t dim_stride, float scale,
                float* scores) {
  constexpr int kVecs = kGroups * kGroupVecs;
  const float* query[kQueries];
  const T* group[kGroups];
  for (int m = 0; m < kQueries; ++m) query[m] = q[m];
  for (int g = 0; g < kGroups; ++g) group[g] = groups[g];
  Vec sum[kQueries][kVecs];
  for (auto& row : sum)
    for (Vec& s : row) s = Vec::zero();
  for (int d = 0; d < dims; ++d) {
    Vec key[kVecs];
    for (int v = 0; v < kVecs; ++v)
      key[v] =
          load_as_float(group[v / kGroupVecs] + d * dim_stride + std::int64_t{v % kGroupVecs} * Vec::kLanes);
    for (int m = 0; m < kQueries; ++m) {
      const Vec a = Vec::broadcast(query[m] + d);
      for (int v = 0; v < kVecs; ++v) sum[m][v] = Vec::fma(a, key[v], sum[m][v]);
    }
  }
  const Vec factor = Vec::all(scale);
  for (int m = 0; m < kQueries; ++m)
    for (int v = 0; v < kVecs; ++v) (factor * sum[m][v]).store(scores + m * kScoreStride + v * Vec::kLanes);
}

template <int kQueries, class T>
void score_groups(const float* const* q, int dims, const Span<T>& span, int groups, float scale,
                  float* scores) {
  // Few queries need more groups, so that eight sums are under way at once.
  constexpr int kGroups = kQueries > 2 ? kWide : kQueries == 2 && kWide == 1 ? 2 : 4;
  int g = 0;
  for (; g + kGroups <= groups; g += kGroups)
    score_tile<kQueries, kGroups>(q, dims, span.groups + g, span.dim_stride, scale, scores + g * kGroupKeys);
  for (; g < groups; ++g)
    score_tile<kQueries, 1>(q, dims, span.groups + g, span.dim_stride, scale, scores + g * kGroupKeys);
}

/// out[m] += sum over the keys in `needed` of weights[m][key] * value row of key, for kVecs vectors of
/// dimensions.
template <int kQueries, int kVecs, class T>
void value_tile(const float* weights, std::uint64_t needed, const T* const* rows, int dim,
                float* const* out) {
  Vec sum[kQueries][kVecs];
  for (int m = 0; m < kQueries; ++m)
    for (int v = 0; v < kVecs; ++v) sum[m][v] = Vec::load(out[m] + dim + v * Vec::kLanes);
  for (; needed != 0; needed &= needed - 1) {
    const int key = __builtin_ctzll(needed);
    const T* const row = rows[key] + dim;
    Vec value[kVecs];
    for (int v = 0; v < kVecs; ++v) value[v] = load_as_float(row + v * Vec::kLanes);
    for (int m = 0; m < kQueries; ++m) {
      const Vec a = Vec::broadcast(weights + m * kScoreStride + key);
      for (int v = 0; v < kVecs; ++v) sum[m][v] = Vec::fma(a, value[v], sum[m][v]);
    }
  }
  for (int m = 0; m < kQueries; ++m)
    for (int v = 0; v < kVecs; ++v) sum[m][v].store(out[m] + dim + v * Vec::kLanes);
}

template <int kQueries, int kVecs, class T>
void value_columns(const float* weights, std::uint64_t needed, const T* const* rows, int dim, int dims,
                   float* const* out) {
  for (; dim + kVecs * Vec::kLanes <= dims; dim += kVecs * Vec::kLanes)
    value_tile<kQueries, kVecs>(weights, needed, rows, dim, out);
  if constexpr (kVecs > 1) {
    if (dim < dims) value_columns<kQueries, kVecs / 2>(weights, needed, rows, dim, dims, out);
  }
}

/// dims: a multiple of 16.
template <int kQueries, class T>
void add_values(const float* weights, std::uint64_t needed, const T* const* rows, int dims,
                float* const* out) {
  constexpr int kVecs = kQueries > 2 ? kWide * kGroupVecs : 2 * kWide * kGroupVecs;
  value_columns<kQueries, kVecs>(weights, needed, rows, 0, dims, out);
}

/// The same sums for two queries whose weights are mostly zero: each takes only the keys it needs. Two at
/// once, because the sums of one query are too few to hide the latency of an FMA.
template <int kVecs, class T>
void value_pair_tile(const float* const* weights, const std::uint64_t* needed, const T* const* rows, int dim,
                     float* const* out) {
  Vec sum[2][kVecs];
  for (int m = 0; m < 2; ++m)
    for (int v = 0; v < kVecs; ++v) sum[m][v] = Vec::load(out[m] + dim + v * Vec::kLanes);
  const auto add = [&](int m, std::uint64_t& left) {
    const int key = __builtin_ctzll(left);
    left &= left - 1;
    const T* const row = rows[key] + dim;
    const Vec a = Vec::broadcast(weights[m] + key);
    for (int v = 0; v < kVecs; ++v) sum[m][v] = Vec::fma(a, load_as_float(row + v * Vec::kLanes), sum[m][v]);
  };
  std::uint64_t first = needed[0];
  std::uint64_t second = needed[1];
  while (first != 0 && second != 0) {
    add(0, first);
    add(1, second);
  }
  while (first != 0) add(0, first);
  while (second != 0) add(1, second);
  for (int m = 0; m < 2; ++m)
    for (int v = 0; v < kVecs; ++v) sum[m][v].store(out[m] + dim + v * Vec::kLanes);
}

template <int kVecs, class T>
void value_pair_columns(const float* const* weights, const std::uint64_t* needed, const T* const* rows,
                        int dim, int dims, float* const* out) {
  for (; dim + kVecs * Vec::kLanes <= dims; dim += kVecs * Vec::kLanes)
    value_pair_tile<kVecs>(weights, needed, rows, dim, out);
  if constexpr (kVecs > 1) {
    if (dim < dims) value_pair_columns<kVecs / 2>(weights, needed, rows, dim, dims, out);
  }
}

template <class T>
void add_sparse_values(const float* const* weights, const std::uint64_t* needed, const T* const* rows,
                       int dims, float* const* out) {
  value_pair_columns<kWide == 4 ? 8 : 4>(weights, needed, rows, 0, dims, out);
}

}  // namespace
}  // namespace asynct::attention
