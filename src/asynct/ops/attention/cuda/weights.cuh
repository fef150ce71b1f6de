#pragma once

#include <cstdint>

#include "asynct/ops/attention/cuda/args.h"

// AsyncI's weights in registers. A lane of a quad holds the scores of kTileKeys / 4 = 4 consecutive keys of a
// row; what a key is pooled with lies in the same lane or in the last keys of the lane before it.
namespace asynct::cuda {

/// The pooled values of the keys before the next tile, as each quad's first lane needs them.
template <int kPool>
struct PoolHistory {
  static constexpr int kTaps = kPool - 1;
  float last[kTaps > 0 ? kTaps : 1] = {};  // last[i]: i + 1 keys before the tile
};

/// Sum of the pooled values that end at each of 4 keys. Pairs are added first, at even keys: the association
/// depends on a key's position only, and half of the sums are shared.
template <int kPool>
__device__ inline void pool(const float (&r)[4], PoolHistory<kPool>& history, int lane, float (&sum)[4]) {
  constexpr int kTaps = kPool - 1;
  static_assert(kPool == 1 || kPool == 2 || kPool == 3 || kPool == 5, "pool sizes of docs: 1, 2, 3, 5");
  const int before = (lane & ~3) | ((lane + 3) & 3);
  float p[kTaps > 0 ? kTaps : 1];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    // The quad's last lane hands its keys to the first lane, which keeps them for the next tile.
    const float received = __shfl_sync(~0u, r[3 - i], before);
    p[i] = (lane & 3) == 0 ? history.last[i] : received;
    history.last[i] = received;
  }
  if constexpr (kPool == 1) {
    for (int i = 0; i < 4; ++i) sum[i] = r[i];
  } else if constexpr (kPool == 2) {
    sum[0] = r[0] + p[0];
    for (int i = 1; i < 4; ++i) sum[i] = r[i] + r[i - 1];
  } else if constexpr (kPool == 3) {
    const float first = r[0] + p[0];
    const float second = r[2] + r[1];
    sum[0] = first + p[1];
    sum[1] = first + r[1];
    sum[2] = second + r[0];
    sum[3] = second + r[3];
  } else {
    const float before2 = p[1] + p[2];  // keys -2, -3
    const float around = r[0] + p[0];   // keys 0, -1
    const float after = r[2] + r[1];    // keys 2, 1
    sum[0] = (around + before2) + p[3];
    sum[1] = (around + before2) + r[1];
    sum[2] = (after + around) + p[1];
    sum[3] = (after + around) + r[3];
  }
}

/// The weight of a score and what is pooled with it, to be clamped by pack_weights().
template <bool kPlain>
__device__ inline float weight(const HeadFactors& factors, float x, float pooled) {
  if constexpr (kPlain) return fmaf(-factors.sigma, pooled, x);
  return fmaf(factors.slope, x, fmaf(-factors.sigma, pooled, factors.bias));
}

}  // namespace asynct::cuda
