#pragma once

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/mma.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"
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
// A warpgroup multiplies a part of K after the other. Tokens are the left operand, in registers: the matrix
// units read no more of the shared memory than the weights, whatever the number of tokens.
namespace asynct::cuda {

template <int kTokenCount, int kOutputCount, int kGroupCount>
struct PanelTraits {
  static constexpr int kTokens = kTokenCount;
  static constexpr int kOutputs = kOutputCount;  // weight rows of a block
  static constexpr int kGroups = kGroupCount;
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kStepBytes = kOutputs * 128;  // of weights: 64 inputs
  static constexpr int kSumStride = kOutputs + 2;    // floats
  static constexpr int kSumBytes = kTokens * kSumStride * 4;
  /// Input rows of a part lie apart so that 8 of them meet different banks.
  static constexpr int input_stride(int steps) { return steps * 128 + 16; }
  static constexpr int part_bytes(int steps) {
    return steps * kStepBytes + kTokens * input_stride(steps) + kSumBytes + 8;
  }
  static constexpr int shared_bytes(int steps, int parts) { return 1024 + parts * part_bytes(steps); }
};

template <class Traits>
struct PanelShared {
  std::uint32_t base;
  int steps;
  int parts;
  __device__ std::uint32_t weight(int part) const { return base + part * steps * Traits::kStepBytes; }
  __device__ std::uint32_t input(int part) const {
    return weight(parts) + part * Traits::kTokens * Traits::input_stride(steps);
  }
  __device__ std::uint32_t sums(int part) const { return input(parts) + part * Traits::kSumBytes; }
  __device__ std::uint32_t full(int part) const { return sums(parts) + 8 * part; }
};

/// A part's rows, by the threads of its warpgroup.
template <class Traits>
__device__ inline void ask_for_input(const PanelArgs& args, const PanelShared<Traits>& shared, int part) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = warp; row < args.rows; row += 4) {
    const std::uint16_t* const from = args.input + row * args.input_stride + part * args.steps * 64;
    const std::uint32_t to = shared.input(part) + row * Traits::input_stride(args.steps);
    for (int piece = lane; piece < args.steps * 8; piece += 32)
      copy_async_16(to + 16 * piece, from + 8 * piece);
  }
}

template <class Traits>
__device__ inline void multiply_part(const PanelArgs& args, const PanelShared<Traits>& shared, int part) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool has_tokens = 16 * warp < Traits::kTokens;
  const int row = (16 * warp + lane % 16) % Traits::kTokens;  // there may be but 8: then they are twice there
  const std::uint32_t input = shared.input(part) + row * Traits::input_stride(args.steps) + lane / 16 * 16;
  const std::uint64_t weights = wgmma::operand(shared.weight(part), 1024, 16);
  std::uint32_t tokens[2][2][4] = {};
  float sum[Traits::kOutputs / 2];
  barrier_wait(shared.full(part), 0);
#pragma unroll 2
  for (int half = 0; half < 2 * args.steps; ++half) {  // 32 inputs
    auto& a = tokens[half % 2];
    if (has_tokens) {
      load_matrices(a[0], input + half * 64);
      load_matrices(a[1], input + half * 64 + 32);
    }
    const std::uint64_t weight = wgmma::advance(weights, half / 2 * Traits::kStepBytes + half % 2 * 64);
    wgmma::fence();
#pragma unroll
    for (int k = 0; k < 2; ++k)
      wgmma::RegisterProduct<Traits::kOutputs, 0>::multiply(a[k], wgmma::advance(weight, 32 * k), sum,
                                                            half > 0 || k > 0);
    wgmma::commit();
    wgmma::wait<1>();  // the fragments of the half before are free
  }
  wgmma::wait<0>();
  wgmma::touch(sum);
  if (!has_tokens) return;
#pragma unroll
  for (int h = 0; h < (Traits::kTokens == 8 ? 1 : 2); ++h) {
    const std::uint32_t to =
        shared.sums(part) + 4 * ((16 * warp + lane / 4 + 8 * h) * Traits::kSumStride + 2 * (lane % 4));
#pragma unroll
    for (int j = 0; j < Traits::kOutputs / 8; ++j)
      store_pair(to + 32 * j, sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]);
  }
}

template <class Traits, class Epilogue>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    panel_kernel(const __grid_constant__ PanelArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ unsigned char memory[];
  const PanelShared<Traits> shared = {(shared_address(memory) + 1023) & ~1023U, args.steps, args.parts};
  const int first = static_cast<int>(blockIdx.x) * Traits::kOutputs;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    launch_dependents();
    for (int part = 0; part < args.parts; ++part) barrier_init(shared.full(part), 1);
    barrier_init_fence();
    for (int part = 0; part < args.parts; ++part) {
      barrier_arrive_expect(shared.full(part), args.steps * Traits::kStepBytes);
      tma_load(shared.weight(part), args.weight, shared.full(part), 0, first, part * args.steps, 0, 0);
    }
  }
  // Pairs of outputs and tokens i = thread, thread + kThreads, ... are the thread's to finish.
  constexpr int kPairs = Traits::kOutputs / 2;
  const auto wanted = [&](int i) {
    return i / kPairs < args.rows && first + 2 * (i % kPairs) < args.outputs;
  };
  decltype(load_factors(epilogue, 0)) factors = {};
  decltype(load_before(epilogue, 0, 0)) before = {};
  if (wanted(thread)) factors = load_factors(epilogue, first + 2 * (thread % kPairs));
  __syncthreads();
  wait_for_launcher();
  const int group = thread / 128;
  for (int part = group; part < args.parts; part += Traits::kGroups) ask_for_input(args, shared, part);
  copy_async_commit();
  if (wanted(thread)) before = load_before(epilogue, thread / kPairs, first + 2 * (thread % kPairs));
  copy_async_wait<0>();
  barrier_sync(1 + group, 128);
  for (int part = group; part < args.parts; part += Traits::kGroups) multiply_part(args, shared, part);
  __syncthreads();
  for (int i = thread; i < args.rows * kPairs; i += Traits::kThreads) {
    if (!wanted(i)) continue;
    const int token = i / kPairs;
    const int n = first + 2 * (i % kPairs);
    if (i != thread) {
      factors = load_factors(epilogue, n);
      before = load_before(epilogue, token, n);
    }
    const std::uint32_t from = shared.sums(0) + 4 * (token * Traits::kSumStride + 2 * (i % kPairs));
    float2 total = load_pair(from);
    for (int part = 1; part < args.parts; ++part) {
      const float2 sum = load_pair(from + part * Traits::kSumBytes);
      total = {total.x + sum.x, total.y + sum.y};
    }
    store_outputs(epilogue, token, n, total.x, total.y, factors, before);
  }
}

}  // namespace asynct::cuda
