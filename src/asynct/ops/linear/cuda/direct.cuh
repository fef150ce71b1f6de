#pragma once

#include <utility>

#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"

// Products of very few rows (sm_80 and later; overlaps with its neighbours on sm_90): latency first.
//
// Floor: 2 N K bytes at the read rate, which for a layer's weights is less than the way from one kernel to
// the next. So nothing but that way counts: weights come straight into registers, all of them, before the
// kernel waits for its input; then one load of the input, one chain of matrix instructions, one barrier in
// the block.
//
// A warp multiplies 16 weight rows by one part of K; the parts of the same rows are warps of one block. A
// fragment's k are permuted so that a lane reads 8 bytes, the same way in both operands: the sum over 16
// inputs does not depend on their order.
namespace asynct::cuda {

inline constexpr int kDirectRows = 16;           // weight rows of a warp
inline constexpr int kDirectTokens = 8;          // of a matrix instruction
inline constexpr int kDirectSumStride = 16 + 2;  // floats a token's sums

constexpr int direct_shared_bytes(int warps, int token_tiles) {
  return warps * token_tiles * kDirectTokens * kDirectSumStride * 4;
}
inline constexpr int kDirectSharedBytes = direct_shared_bytes(8, 8);

__device__ inline uint2 load_weight(const std::uint16_t* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.b32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from));
  return v;
}

/// 16 weight rows of a part of K, which is kSteps matrix instructions long.
template <int kSteps>
struct DirectWeights {
  std::uint32_t rows[kSteps][4];

  /// The lane's pieces, `from` at the part's first input. Rows past the end repeat the last one.
  __device__ void load(const DirectArgs& args, const std::uint16_t* from, int first, int lane) {
    const auto row = [&](int i) {
      return from + min(first + lane / 4 + i, args.outputs - 1) * args.weight_stride + 4 * (lane % 4);
    };
    const std::uint16_t* const low = row(0);
    const std::uint16_t* const high = row(8);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint2 a = load_weight(low + 16 * i);
      const uint2 b = load_weight(high + 16 * i);
      rows[i][0] = a.x, rows[i][1] = b.x, rows[i][2] = a.y, rows[i][3] = b.y;
    }
  }

  /// sum = rows x (8 tokens)^T, `from` at the lane's piece of its token's part.
  __device__ void multiply(float (&sum)[4], const std::uint16_t* from) const {
    uint2 input[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) input[i] = __ldcg(reinterpret_cast<const uint2*>(from + 16 * i));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) multiply_add<__nv_bfloat16>(sum, rows[i], input[i].x, input[i].y);
  }
};

/// What a thread finishes: pairs of outputs of a token, 64 a tile of rows and of tokens.
struct DirectItem {
  int i;
  int n;
  int token;

  __device__ DirectItem(int number, int first_tile, int token_tiles) : i(number) {
    const int tile = token_tiles == 1 ? i / 64 : i / 64 / token_tiles;
    n = (first_tile + tile) * kDirectRows + 2 * (i % 8);
    token = (i / 64 - tile * token_tiles) * kDirectTokens + i / 8 % 8;
  }
  __device__ bool wanted(const DirectArgs& args) const { return n < args.outputs && token < args.rows; }
  __device__ int first_sum(int parts) const {
    return (i / 64 * parts * kDirectTokens + i / 8 % 8) * kDirectSumStride + 2 * (i % 8);
  }
};

template <int kSteps, class Epilogue>
__global__ void __launch_bounds__(256)
    direct_kernel(const __grid_constant__ DirectArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ float sums[];  // [tile of rows, tile of tokens, part, token, kDirectSumStride]
  if (threadIdx.x == 0) launch_dependents();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int part = thread / 32 % args.parts;
  const int tile = thread / 32 / args.parts;
  const int block_tiles = static_cast<int>(blockDim.x) / 32 / args.parts;
  const int first_tile = static_cast<int>(blockIdx.x) * block_tiles;
  const int token_tiles = (args.rows + kDirectTokens - 1) / kDirectTokens;
  const int first_input = part * 16 * kSteps;

  DirectWeights<kSteps> weights;
  weights.load(args, args.weight + first_input, (first_tile + tile) * kDirectRows, lane);
  const int items = 64 * block_tiles * token_tiles;
  DirectItem item(thread, first_tile, token_tiles);
  bool wanted = thread < items && item.wanted(args);
  decltype(load_factors(epilogue, 0)) factors = {};
  decltype(load_before(epilogue, 0, 0)) before = {};
  if (wanted) factors = load_factors(epilogue, item.n);

  wait_for_launcher();
  if (wanted) before = load_before(epilogue, item.token, item.n);
  for (int t = 0; t < token_tiles; ++t) {
    const int token = min(t * kDirectTokens + lane / 4, args.rows - 1);
    float sum[4] = {};
    weights.multiply(sum, args.input + token * args.input_stride + first_input + 4 * (lane % 4));
    float* const to =
        sums +
        (((tile * token_tiles + t) * args.parts + part) * kDirectTokens + 2 * (lane % 4)) * kDirectSumStride +
        lane / 4;
    to[0] = sum[0];
    to[kDirectSumStride] = sum[1];
    to[8] = sum[2];
    to[kDirectSumStride + 8] = sum[3];
  }
  __syncthreads();

  for (int i = thread; i < items; i += static_cast<int>(blockDim.x)) {
    if (i != thread) {
      item = DirectItem(i, first_tile, token_tiles);
      wanted = item.wanted(args);
      if (wanted) factors = load_factors(epilogue, item.n);
      if (wanted) before = load_before(epilogue, item.token, item.n);
    }
    if (!wanted) continue;
    const float* at = sums + item.first_sum(args.parts);
    float a = at[0];
    float b = at[1];
    for (int p = 1; p < args.parts; ++p) {
      at += kDirectTokens * kDirectSumStride;
      a += at[0];
      b += at[1];
    }
    store_outputs(epilogue, item.token, item.n, a, b, factors, before);
  }
}

}  // namespace asynct::cuda
