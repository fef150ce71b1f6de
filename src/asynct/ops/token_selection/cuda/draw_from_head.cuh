#pragma once

#include "asynct/ops/token_selection/cuda/row.cuh"

namespace asynct::cuda {

inline constexpr int kHead = 512;

/// Tells all blocks the last bucket up to which `wanted` threads have their largest logit: as many tokens are
/// at least as probable. First block only.
template <class Element>
__device__ void bound_head(const Row<Element>& row, int wanted) {
  double threads[kBucketShare];
  row.template gather_buckets<1>(threads);
  double sum = 0;
  for (const double count : threads) sum += count;
  double up_to = block_sum_before(sum, row.scratch);
  int found = kFar - 1;
#pragma unroll
  for (int i = 0; i < kBucketShare; ++i) {
    up_to += threads[i];
    if (up_to >= wanted) found = min(found, static_cast<int>(threadIdx.x) * kBucketShare + i);
  }
  row.tell(&SelectorMemory::bucket, block_first(found, kFar - 1, row.scratch));
}

/// Draws from the list, which holds the most probable tokens down to some bucket, `whole` when those are all
/// that have mass. `total` is the mass of all, where it is wanted. false: the point lies beyond. First block
/// only.
template <class Element>
__device__ bool draw_from_list(const Row<Element>& row, double point, double total, bool whole) {
  const TokenChoice& choice = row.choice;
  int listed = row.memory.listed;
  sort_list(row.memory.list, listed);
  if (choice.top_k > 0) {
    if (listed < choice.top_k && !whole) return false;
    listed = min(listed, choice.top_k);
    whole = true;
  }
  double up_to[kListShare];
  double of_list;
  const int kept_tokens = row.weigh_list(listed, 0, of_list, up_to);
  if (choice.top_k > 0) total = of_list;
  whole |= kept_tokens < listed;
  double kept = total;
  int end = kept_tokens;
  if (choice.top_p < 1) {
    const int border =
        row.first_in_list(up_to, kept_tokens, [&](double mass) { return mass >= choice.top_p * total; });
    if (border == kept_tokens && !whole) return false;
    end = min(border + 1, kept_tokens);
    kept = row.mass_at(up_to, end - 1);
  } else if (choice.min_p > 0) {
    if (!whole) return false;
    kept = row.mass_at(up_to, kept_tokens - 1);
  }
  const int drawn = row.first_in_list(up_to, end, [&](double mass) { return mass > point * kept; });
  if (drawn == end && !whole && choice.top_p == 1) return false;
  row.choose(row.memory.list[min(drawn, end - 1)]);
  return true;
}

/// Draws from the most probable tokens, which nearly always hold the point; false where they do not.
template <class Element>
__device__ bool draw_from_head(const Row<Element>& row, double point) {
  SelectorMemory& memory = row.memory;
  const TokenChoice& choice = row.choice;
  const int mine = row.bucket_of(key_logit(row.mine));
  if (mine < kFar) atomicAdd(&memory.histogram[mine], 1u);
  cluster_sync();
  if (row.rank == 0) bound_head(row, choice.top_k > 0 ? choice.top_k : kHead);
  double mass = 0;
  if (choice.top_k == 0 && (choice.top_p < 1 || choice.min_p == 0)) {
    row.each([&](float logit, int) { mass += row.quick_weight(logit); });
    mass = block_sum(mass, row.scratch);
  }
  if (threadIdx.x == 0) in_block(memory.mass, 0)[row.rank] = mass;
  cluster_sync();
  const int last = memory.bucket;
  row.collect([&](float logit, int) { return row.bucket_of(logit) <= last; });
  cluster_sync();
  if (row.rank == 0) {
    double total = 0;
    for (const double part : memory.mass) total += part;
    const bool fits = memory.listed <= kListSize;
    row.tell(&SelectorMemory::done, fits && draw_from_list(row, point, total, last == kFar - 1));
  }
  cluster_sync();
  return memory.done;
}

}  // namespace asynct::cuda
