#pragma once

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"

// Products of few rows with a layer's weights (sm_90a), bound by the reading of the weights and by the way
// from one product to the next.
//
// Floor: 2 N K bytes at the read rate; 4.2 MB take 1 us.
//
// A block has a few weight rows, as many as give every multiprocessor one block, and all of K: so the parts
// of K meet in its own memory. It asks for all of its weights as soon as it is there and lets the next
// kernel's blocks in beside it to do the same; only then it waits for its input. Blocks are small, so that
// several kernels' fit a multiprocessor.
//
// A warp multiplies a part of K with a slice of the weight rows: one chain of instructions for each 8 rows
// and 16 tokens, which no other warp waits for.
namespace asynct::cuda {

template <int kOutputCount, int kSliceCount, int kTokenTileCount>
struct PanelTraits {
  static constexpr int kOutputs = kOutputCount;        // weight rows of a block
  static constexpr int kSlices = kSliceCount;          // of them; a warp each, in each part
  static constexpr int kTokenTiles = kTokenTileCount;  // of 16 tokens
  static constexpr int kBlocks = (kOutputs / 8 + kSlices - 1) / kSlices;  // of 8 rows, in a slice
  static constexpr int kStepBytes = kOutputs * 128;                       // of weights: 64 inputs
  static constexpr int kSumStride = kOutputs + 2;                         // floats
  /// Input rows lie apart so that 8 of them meet different banks.
  static constexpr int row_bytes(int inputs) { return 2 * inputs + 16; }
  static constexpr int shared_bytes(int rows, int inputs, int parts) {
    return 1024 + inputs / 64 * kStepBytes + rows * (row_bytes(inputs) + parts * kSumStride * 4) + 8 * parts;
  }
};

template <class Traits>
struct PanelShared {
  std::uint32_t base;
  int rows;
  int steps;  // of a part
  int parts;
  __device__ std::uint32_t weight(int step) const { return base + step * Traits::kStepBytes; }
  __device__ std::uint32_t input(int row) const {
    return weight(parts * steps) + row * Traits::row_bytes(parts * steps * 64);
  }
  __device__ std::uint32_t sums(int part, int row) const {
    return input(rows) + (part * rows + row) * Traits::kSumStride * 4;
  }
  __device__ std::uint32_t full(int part) const { return sums(parts, 0) + 8 * part; }
};

template <class Traits>
__device__ inline void ask_for_input(const PanelArgs& args, const PanelShared<Traits>& shared) {
  const int pieces = args.parts * args.steps * 8;
  for (int row = 0; row < args.rows; ++row)
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += static_cast<int>(blockDim.x))
      copy_async_16(shared.input(row) + 16 * piece, args.input + row * args.input_stride + 8 * piece);
  copy_async_commit();
}

/// A part's sums of a slice, by one warp.
template <class Traits>
__device__ inline void multiply_part(const PanelArgs& args, const PanelShared<Traits>& shared, int part,
                                     int slice) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t input[Traits::kTokenTiles];
#pragma unroll
  for (int t = 0; t < Traits::kTokenTiles; ++t)
    input[t] =
        shared.input(min(16 * t + lane % 16, args.rows - 1)) + part * args.steps * 128 + lane / 16 * 16;
  // Row lane % 8 of 8, and which 16 bytes of its first 64 and of its second 64, as the copy engine laid them.
  const std::uint32_t weight =
      shared.weight(part * args.steps) + slice * Traits::kBlocks * 1024 + lane % 8 * 128;
  const std::uint32_t piece[2] = {static_cast<std::uint32_t>((lane / 8 ^ lane % 8) << 4),
                                  static_cast<std::uint32_t>(((lane / 8 + 4) ^ lane % 8) << 4)};
  float sum[Traits::kTokenTiles][Traits::kBlocks][4] = {};
#pragma unroll 2
  for (int step = 0; step < args.steps; ++step) {
    std::uint32_t a[4][Traits::kTokenTiles][4];
    std::uint32_t b[Traits::kBlocks][2][4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int t = 0; t < Traits::kTokenTiles; ++t) load_matrices(a[k][t], input[t] + step * 128 + 32 * k);
#pragma unroll
    for (int n = 0; n < Traits::kBlocks; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        load_matrices(b[n][h], weight + step * Traits::kStepBytes + n * 1024 + piece[h]);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int n = 0; n < Traits::kBlocks; ++n)
#pragma unroll
        for (int t = 0; t < Traits::kTokenTiles; ++t)
          multiply_add<__nv_bfloat16>(sum[t][n], a[k][t], b[n][k / 2][k % 2 * 2], b[n][k / 2][k % 2 * 2 + 1]);
  }
#pragma unroll
  for (int t = 0; t < Traits::kTokenTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = 16 * t + lane / 4 + 8 * h;
      if (token >= args.rows) continue;
#pragma unroll
      for (int n = 0; n < Traits::kBlocks; ++n)
        store_pair(shared.sums(part, token) + (slice * Traits::kBlocks + n) * 32 + 8 * (lane % 4),
                   sum[t][n][2 * h], sum[t][n][2 * h + 1]);
    }
}

template <class Traits, class Epilogue>
__global__ void panel_kernel(const __grid_constant__ PanelArgs args,
                             const __grid_constant__ Epilogue epilogue) {
  extern __shared__ unsigned char memory[];
  const PanelShared<Traits> shared = {(shared_address(memory) + 1023) & ~1023U, args.rows, args.steps,
                                      args.parts};
  const int first = static_cast<int>(blockIdx.x) * Traits::kOutputs;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    launch_dependents();
    for (int part = 0; part < args.parts; ++part) barrier_init(shared.full(part), 1);
    barrier_init_fence();
    for (int part = 0; part < args.parts; ++part) {
      barrier_arrive_expect(shared.full(part), args.steps * Traits::kStepBytes);
      tma_load(shared.weight(part * args.steps), args.weight, shared.full(part), 0, first, part * args.steps,
               0, 0);
    }
  }
  // Pairs of outputs and tokens i = thread, thread + blockDim.x, ... are the thread's to finish.
  constexpr int kPairs = Traits::kOutputs / 2;
  const auto wanted = [&](int i) {
    return i / kPairs < args.rows && first + 2 * (i % kPairs) < args.outputs;
  };
  decltype(load_factors(epilogue, 0)) factors = {};
  decltype(load_before(epilogue, 0, 0)) before = {};
  if (wanted(thread)) factors = load_factors(epilogue, first + 2 * (thread % kPairs));
  __syncthreads();
  const int part = thread / 32 / Traits::kSlices;
  barrier_wait(shared.full(part), 0);
  wait_for_launcher();
  ask_for_input(args, shared);
  if (wanted(thread)) before = load_before(epilogue, thread / kPairs, first + 2 * (thread % kPairs));
  copy_async_wait<0>();
  __syncthreads();
  multiply_part(args, shared, part, thread / 32 % Traits::kSlices);
  __syncthreads();
  for (int i = thread; i < args.rows * kPairs; i += static_cast<int>(blockDim.x)) {
    if (!wanted(i)) continue;
    const int token = i / kPairs;
    const int n = first + 2 * (i % kPairs);
    if (i != thread) {
      factors = load_factors(epilogue, n);
      before = load_before(epilogue, token, n);
    }
    float2 total = load_pair(shared.sums(0, token) + 8 * (i % kPairs));
    for (int p = 1; p < args.parts; ++p) {
      const float2 sum = load_pair(shared.sums(p, token) + 8 * (i % kPairs));
      total = {total.x + sum.x, total.y + sum.y};
    }
    store_outputs(epilogue, token, n, total.x, total.y, factors, before);
  }
}

}  // namespace asynct::cuda
