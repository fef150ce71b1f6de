#pragma once

#include <cmath>

namespace asynct::cuda {

/// Softmax of a row whose scores come tile by tile. Weights are relative to a score that was the largest some
/// time ago: only when the largest has outgrown it by kSlack are earlier sums rescaled, which is rare.
///
/// exp2 is the hardware's. Beside matrix instructions it takes 11 clocks a warp, a polynomial of degree 3
/// some 14 of the units that scores need too (docs/notes/hopper-attention.md): no share of them is worth it
/// here.
struct OnlineSoftmax {
  static constexpr float kSlack = 8;  // in powers of two: sums stay far from overflow, weights from underflow

  float base = -INFINITY;  // what weights are relative to
  float total = 0;         // of this thread's weights
  float factor = 1;        // of the sums before the tile

  /// Before a tile's weights: its largest score; `scale` has log2(e).
  __device__ void see(float largest, float scale) {
    factor = 1;
    if ((largest - base) * scale <= kSlack) return;
    factor = exp2f((base - largest) * scale);
    base = largest;
    total *= factor;
  }

  __device__ float weight(float score, float scale) {
    float a;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(a) : "f"(fmaf(score, scale, -base * scale)));
    total += a;
    return a;
  }
};

__device__ inline float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float sum_of_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

}  // namespace asynct::cuda
