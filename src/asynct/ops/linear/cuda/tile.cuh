#pragma once

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/cluster.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"
#include "asynct/ops/linear/cuda/policy.h"

// Products of many rows (sm_90a), bound by the matrix units.
//
// Floor: 2 T N K flops at the matrix rate.
//
// A block computes tiles of 128 tokens and 128 outputs: a producer warp asks the copy engine for steps of 64
// inputs, two warpgroups of 64 tokens multiply. The sum of a part of K stays in the accumulators, the sum of
// the parts in as many other registers: that is the streaming kernel's order, and why a tile is not 128 x
// 256. Two blocks of a cluster have the same outputs and share their weights: each asks for half of them on
// behalf of both, since the L2 could not feed tiles of this size otherwise.
namespace asynct::cuda {

inline constexpr int kTileStages = 6;
inline constexpr int kTileBytes = 128 * 128;  // 64 inputs of 128 tokens, or outputs
inline constexpr int kTileSumColumns = 32;    // that a warp turns from its fragments into rows at a time
inline constexpr int kTileSumStride = kTileSumColumns + 4;  // floats
inline constexpr int kTileSumBytes = 8 * 16 * kTileSumStride * 4;
inline constexpr int kTileShared = 1024 + kTileStages * (2 * kTileBytes + 16) + kTileSumBytes;
inline constexpr int kTileThreads = 3 * 128;
inline constexpr int kTileCluster = 2;
inline constexpr int kTileGroup = 8;  // pairs of token tiles that go through all weights together

struct TileShared {
  std::uint32_t base;
  __device__ std::uint32_t input(int stage) const { return base + stage * 2 * kTileBytes; }
  __device__ std::uint32_t weight(int stage) const { return input(stage) + kTileBytes; }
  /// Of one of the 8 warps that multiply.
  __device__ std::uint32_t sums(int warp) const { return input(kTileStages) + warp * (kTileSumBytes / 8); }
  __device__ std::uint32_t full(int stage) const { return sums(8) + 8 * stage; }
  __device__ std::uint32_t free(int stage) const { return full(kTileStages + stage); }
};

/// The tiles of a block, one after the other: a group's pairs of token tiles first, so that a weight tile is
/// read by all of them at about the same time and the group's tokens stay in the L2.
struct TileSequence {
  const TileArgs& args;
  int index = static_cast<int>(blockIdx.x) / kTileCluster;

  __device__ bool ended() const { return index >= args.token_pairs * args.output_tiles; }
  __device__ void next() { index += static_cast<int>(gridDim.x) / kTileCluster; }
  __device__ int group() const { return index / (kTileGroup * args.output_tiles); }
  __device__ int pairs() const { return min(kTileGroup, args.token_pairs - group() * kTileGroup); }
  __device__ int in_group() const { return index - group() * kTileGroup * args.output_tiles; }
  __device__ int first_token() const {
    const int pair = group() * kTileGroup + in_group() % pairs();
    return (pair * kTileCluster + static_cast<int>(cluster_rank())) * 128;
  }
  __device__ int first_output() const { return in_group() / pairs() * 128; }
};

/// One thread that asks for all steps of all tiles.
__device__ inline void tile_produce(const TileArgs& args, TileShared shared) {
  const int steps = args.parts * args.steps;
  const int rank = static_cast<int>(cluster_rank());
  int stage = 0;
  int round = 0;
  for (TileSequence tile = {args}; !tile.ended(); tile.next())
    for (int step = 0; step < steps; ++step) {
      if (round > 0) barrier_wait(shared.free(stage), (round - 1) & 1);
      barrier_arrive_expect(shared.full(stage), 2 * kTileBytes);
      tma_load(shared.input(stage), args.input, shared.full(stage), 0, tile.first_token(), step, 0, 0);
      tma_load_multicast(shared.weight(stage) + rank * kTileBytes / 2, args.weight, shared.full(stage),
                         (1 << kTileCluster) - 1, 0, tile.first_output() + rank * 64, step, 0, 0);
      if (++stage == kTileStages) stage = 0, ++round;
    }
}

/// 64 tokens of each tile.
template <class Epilogue>
class TileConsumer {
 public:
  __device__ TileConsumer(const TileArgs& args, const Epilogue& epilogue, TileShared shared, int group)
      : args_(args), epilogue_(epilogue), shared_(shared), group_(group) {}

  __device__ void run() {
    for (TileSequence tile = {args_}; !tile.ended(); tile.next()) {
      for (int part = 0; part < args_.parts; ++part) {
        multiply();
#pragma unroll
        for (int i = 0; i < 64; ++i) total_[i] = part == 0 ? sum_[i] : total_[i] + sum_[i];
      }
      store(tile.first_token(), tile.first_output());
    }
  }

 private:
  /// A part's sum.
  __device__ void multiply() {
    for (int step = 0; step < args_.steps; ++step) {
      barrier_wait(shared_.full(stage_), round_ & 1);
      const std::uint64_t input = wgmma::operand(shared_.input(stage_) + group_ * 64 * 128, 1024, 16);
      const std::uint64_t weight = wgmma::operand(shared_.weight(stage_), 1024, 16);
      wgmma::fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma::SharedProduct<128, 0>::multiply(wgmma::advance(input, 32 * k), wgmma::advance(weight, 32 * k),
                                               sum_, step > 0 || k > 0);
      wgmma::commit();
      if (step > 0) {
        wgmma::wait<1>();
        release(stage_ == 0 ? kTileStages - 1 : stage_ - 1);
      }
      if (++stage_ == kTileStages) stage_ = 0, ++round_;
    }
    wgmma::wait<0>();
    wgmma::touch(sum_);
    release(stage_ == 0 ? kTileStages - 1 : stage_ - 1);
  }

  /// To both blocks, whose copies write here too.
  __device__ void release(int stage) {
    const std::uint32_t lane = threadIdx.x % 32;
    if (lane < kTileCluster) barrier_arrive_cluster(cluster_address(shared_.free(stage), lane));
  }

  /// Through shared memory, so that a warp reads and writes whole pieces of rows.
  __device__ void store(int first_token, int first_output) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const std::uint32_t sums = shared_.sums(warp);
    const int first_row = first_token + 16 * warp;
    constexpr int kPairs = kTileSumColumns / 2;
    constexpr int kItems = 16 * kPairs / 32;  // a lane's
#pragma unroll
    for (int c = 0; c < 128 / kTileSumColumns; ++c) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < kTileSumColumns / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * (c * kTileSumColumns / 8 + j) + 2 * h;
          store_pair(sums + 4 * ((lane / 4 + 8 * h) * kTileSumStride + 8 * j + 2 * (lane % 4)), total_[i],
                     total_[i + 1]);
        }
      __syncwarp();
      const int n = first_output + c * kTileSumColumns + 2 * (lane % kPairs);
      if (n >= args_.outputs) continue;
      const auto factors = load_factors(epilogue_, n);
      decltype(load_before(epilogue_, 0, 0)) before[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int row = first_row + i * (32 / kPairs) + lane / kPairs;
        if (row < args_.rows) before[i] = load_before(epilogue_, row, n);
      }
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int row = i * (32 / kPairs) + lane / kPairs;
        const float2 sum = load_pair(sums + 4 * (row * kTileSumStride + 2 * (lane % kPairs)));
        if (first_row + row < args_.rows)
          store_outputs(epilogue_, first_row + row, n, sum.x, sum.y, factors, before[i]);
      }
    }
  }

  const TileArgs& args_;
  const Epilogue& epilogue_;
  TileShared shared_;
  const int group_;
  float sum_[64];
  float total_[64];
  int stage_ = 0;
  int round_ = 0;
};

template <class Epilogue>
__global__ void __launch_bounds__(kTileThreads, 1)
    tile_kernel(const __grid_constant__ TileArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ unsigned char memory[];
  const TileShared shared = {(shared_address(memory) + 1023) & ~1023U};
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    launch_dependents();
    for (int i = 0; i < kTileStages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.free(i), 8 * kTileCluster);
    }
    barrier_init_fence();
  }
  __syncwarp();
  cluster_arrive_relaxed();
  cluster_wait();
  wait_for_launcher();
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) tile_produce(args, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    TileConsumer<Epilogue>(args, epilogue, shared, group).run();
  }
  __syncwarp();
  cluster_arrive_relaxed();  // the other block's copies and arrivals come here
  cluster_wait();
}

}  // namespace asynct::cuda
