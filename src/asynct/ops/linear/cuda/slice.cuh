#pragma once

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"
#include "asynct/ops/linear/cuda/policy.h"

// Products of some rows, 17 to a few hundred, with weights whose K has parts (sm_90a): bound by the length of
// the chain of matrix instructions, 60 clocks for each 16 inputs however small the tile.
//
// Floor: 2 N K bytes at the read rate or 2 T N K flops at the matrix rate.
//
// So a block's warpgroups multiply the same tile, 64 tokens and a few outputs, each its own parts of K at the
// same time; their sums meet in shared memory and are added in the order of the parts. A producer warp asks
// the copy engine for steps of 64 inputs, of each warpgroup's part in turn, for weights before the kernel
// before has ended.
namespace asynct::cuda {

template <int kOutputCount>
struct SliceTraits {
  static constexpr int kOutputs = kOutputCount;  // of a tile
  static constexpr int kGroups = kSliceGroups;
  static constexpr int kTokens = 64;
  static constexpr int kInputBytes = kTokens * 128;
  static constexpr int kWeightBytes = kOutputs * 128;
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kWeightBox = tile_box(kOutputs);
  static constexpr int kSumStride = kOutputs + 2;  // floats; rows meet different banks
  static constexpr int kSumBytes = kTokens * kSumStride * 4;
  static constexpr int kProducer = 128 * kGroups;  // a thread of the last warp
  static constexpr int kThreads = kProducer + 32;
  static constexpr int shared_bytes(int stages, int parts) {
    return stages * (kStageBytes + 16) + parts * kSumBytes;
  }
  static_assert(shared_bytes(2 * kGroups, kMostParts) <= kMostSharedBytes, "two stages a warpgroup at least");
};

template <class Traits>
struct SliceShared {
  std::uint32_t base;
  int stages;
  int parts;
  __device__ std::uint32_t input(int stage) const { return base + stage * Traits::kStageBytes; }
  __device__ std::uint32_t weight(int stage) const { return input(stage) + Traits::kInputBytes; }
  __device__ std::uint32_t sums(int part) const { return input(stages) + part * Traits::kSumBytes; }
  __device__ std::uint32_t full(int stage) const { return sums(parts) + 8 * stage; }
  __device__ std::uint32_t free(int stage) const { return full(stages + stage); }
};

/// One thread asks for all steps: the first of each warpgroup's part, then the second, and so on.
template <class Traits>
__device__ inline void slice_produce(const TileArgs& args, const SliceShared<Traits>& shared) {
  const int total = args.parts * args.steps;
  const int in_pass = Traits::kGroups * args.steps;  // a part of each warpgroup
  const int token = static_cast<int>(blockIdx.y) * Traits::kTokens;
  const int output = static_cast<int>(blockIdx.x) * Traits::kOutputs;
  struct Next {
    int pass = 0, step = 0, group = 0, stage = 0, round = 0;
  };
  const auto advance = [&](Next& next) {
    if (++next.stage == shared.stages) next.stage = 0, ++next.round;
    if (++next.group < Traits::kGroups) return;
    next.group = 0;
    if (++next.step == args.steps) next.step = 0, ++next.pass;
  };
  const auto column = [&](const Next& next) {
    return next.pass * in_pass + next.group * args.steps + next.step;
  };
  const auto load_weight = [&](const Next& next) {
    barrier_arrive_expect(shared.full(next.stage), Traits::kStageBytes);
#pragma unroll
    for (int row = 0; row < Traits::kOutputs; row += Traits::kWeightBox)
      tma_load(shared.weight(next.stage) + row * 128, args.weight, shared.full(next.stage), 0, output + row,
               column(next), 0, 0);
  };
  const auto load_input = [&](const Next& next) {
    tma_load(shared.input(next.stage), args.input, shared.full(next.stage), 0, token, column(next), 0, 0);
  };
  int count = 0;
  for (Next next; count < min(shared.stages, total); ++count, advance(next)) load_weight(next);
  wait_for_launcher();
  Next next;
  for (count = 0; count < min(shared.stages, total); ++count, advance(next)) load_input(next);
  for (; count < total; ++count, advance(next)) {
    barrier_wait(shared.free(next.stage), (next.round - 1) & 1);
    load_weight(next);
    load_input(next);
  }
}

/// A warpgroup's parts.
template <class Traits>
__device__ inline void slice_multiply(const TileArgs& args, const SliceShared<Traits>& shared, int group) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  float sum[Traits::kOutputs / 2];
  int stage = group;  // there are at least as many as warpgroups
  int round = 0;
  int last = 0;
  const auto release = [&](int of) {
    if (lane == 0) barrier_arrive(shared.free(of));
  };
  for (int part = group; part < args.parts; part += Traits::kGroups) {
    for (int step = 0; step < args.steps; ++step) {
      barrier_wait(shared.full(stage), round & 1);
      const std::uint64_t input = wgmma::operand(shared.input(stage), 1024, 16);
      const std::uint64_t weight = wgmma::operand(shared.weight(stage), 1024, 16);
      wgmma::fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma::SharedProduct<Traits::kOutputs, 0>::multiply(
            wgmma::advance(input, 32 * k), wgmma::advance(weight, 32 * k), sum, step > 0 || k > 0);
      wgmma::commit();
      if (step > 0) {
        wgmma::wait<1>();
        release(last);
      }
      last = stage;
      stage += Traits::kGroups;
      if (stage >= shared.stages) stage -= shared.stages, ++round;
    }
    wgmma::wait<0>();
    wgmma::touch(sum);
    release(last);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * warp + lane / 4 + 8 * h;
      const std::uint32_t to = shared.sums(part) + 4 * (row * Traits::kSumStride + 2 * (lane % 4));
#pragma unroll
      for (int j = 0; j < Traits::kOutputs / 8; ++j)
        store_shared(to + 32 * j, make_float2(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]));
    }
  }
}

template <class Traits, class Epilogue>
__global__ void __launch_bounds__(Traits::kThreads)
    slice_kernel(const __grid_constant__ TileArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const SliceShared<Traits> shared = {shared_address(memory), args.stages, args.parts};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == Traits::kProducer) {
    launch_dependents();
    for (int i = 0; i < args.stages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.free(i), 4);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (thread >= Traits::kProducer) {
    if (thread == Traits::kProducer) slice_produce(args, shared);
    return;
  }
  // Pairs of outputs and tokens i = thread, thread + kProducer, ... are the thread's to finish.
  constexpr int kPairs = Traits::kOutputs / 2;
  constexpr int kItems = (Traits::kTokens * kPairs + Traits::kProducer - 1) / Traits::kProducer;
  const int token = static_cast<int>(blockIdx.y) * Traits::kTokens;
  const int output = static_cast<int>(blockIdx.x) * Traits::kOutputs;
  const auto wanted = [&](int i) {
    return i < Traits::kTokens * kPairs && token + i / kPairs < args.rows &&
           output + 2 * (i % kPairs) < args.outputs;
  };
  wait_for_launcher();
  slice_multiply(args, shared, thread / 128);
  decltype(load_before(epilogue, 0, 0)) before[kItems] = {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = thread + i * Traits::kProducer;
    if (wanted(item)) before[i] = load_before(epilogue, token + item / kPairs, output + 2 * (item % kPairs));
  }
  barrier_sync(1, Traits::kProducer);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int item = thread + i * Traits::kProducer;
    if (!wanted(item)) continue;
    const int n = output + 2 * (item % kPairs);
    const std::uint32_t from =
        shared.sums(0) + 4 * (item / kPairs * Traits::kSumStride + 2 * (item % kPairs));
    float2 total = load_shared<float2>(from);
    for (int part = 1; part < args.parts; ++part) {
      const float2 sum = load_shared<float2>(from + part * Traits::kSumBytes);
      total = {total.x + sum.x, total.y + sum.y};
    }
    store_outputs(epilogue, token + item / kPairs, n, total.x, total.y, load_factors(epilogue, n), before[i]);
  }
}

}  // namespace asynct::cuda
