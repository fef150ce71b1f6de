#pragma once

#include <cstdint>

// Sums, sorts and searches of one block of kSelectThreads threads, all in a fixed order.
namespace asynct::cuda {

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr int kListSize = 2048;
inline constexpr int kListShare = kListSize / kSelectThreads;  // entries of a thread, one after the other

/// Room for what warps tell each other; every use begins and ends with a barrier.
struct BlockScratch {
  std::uint64_t keys[kSelectWarps];
  double sums[kSelectWarps];
  int first;
};

__device__ inline std::uint64_t block_max(std::uint64_t key, BlockScratch& scratch) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) key = max(key, __shfl_xor_sync(~0u, key, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch.keys[threadIdx.x / 32] = key;
  __syncthreads();
  for (int warp = 0; warp < kSelectWarps; ++warp) key = max(key, scratch.keys[warp]);
  return key;
}

__device__ inline double block_sum(double value, BlockScratch& scratch) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch.sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int warp = 0; warp < kSelectWarps; ++warp) value += scratch.sums[warp];
  return value;
}

/// Sum of `value` over the warp's lanes up to this one.
template <class T>
__device__ inline T warp_sum_up_to(T value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T before = __shfl_up_sync(~0u, value, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) value += before;
  }
  return value;
}

/// Sum of `value` over the threads before this one.
__device__ inline double block_sum_before(double value, BlockScratch& scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const double up_to = warp_sum_up_to(value);
  __syncthreads();
  if (lane == 31) scratch.sums[warp] = up_to;
  __syncthreads();
  double before = 0;
  for (int i = 0; i < warp; ++i) before += scratch.sums[i];
  const double in_warp = __shfl_up_sync(~0u, up_to, 1);
  return lane == 0 ? before : before + in_warp;
}

/// Smallest of the threads' positions; `none` where no thread has a smaller one.
__device__ inline int block_first(int position, int none, BlockScratch& scratch) {
  __syncthreads();
  if (threadIdx.x == 0) scratch.first = none;
  __syncthreads();
  if (position < none) atomicMin(&scratch.first, position);
  __syncthreads();
  return scratch.first;
}

/// Sorts list[0, count) in shared memory, largest first; what lies behind, up to the next power of two, is
/// overwritten. Bitonic: pairs less than 64 apart stay with one warp.
__device__ inline void sort_list(std::uint64_t* list, int count) {
  int size = 64;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kSelectThreads) list[i] = 0;
  bool joined = false;
  for (int run = 2; run <= size; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      if (apart >= 64 || !joined)
        __syncthreads();
      else
        __syncwarp();
      joined = apart < 64;
      for (int pair = threadIdx.x; pair < size / 2; pair += kSelectThreads) {
        const int low = 2 * pair - (pair & (apart - 1));
        const bool descending = (low & run) == 0;
        const std::uint64_t a = list[low], b = list[low + apart];
        if ((a < b) == descending) list[low] = b, list[low + apart] = a;
      }
    }
  __syncthreads();
}

}  // namespace asynct::cuda
