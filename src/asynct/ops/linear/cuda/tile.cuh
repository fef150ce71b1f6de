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
#include "asynct/ops/linear/cuda/tile_store.cuh"

// Products of many rows (sm_90a), bound by the matrix units and by what the L2 gives them.
//
// Floor: 2 T N K flops at the matrix rate.
//
// A block computes tiles of tokens and outputs: a producer warp asks the copy engine for steps of 64 inputs,
// a warpgroup multiplies 64 tokens. The sum of a part of K stays in the accumulators, the sum of the parts in
// as many other registers: that is the streaming kernel's order, and why a tile is not 128 x 256. The blocks
// of a cluster lie beside each other in tokens and outputs; each asks for its share of what several of them
// need on behalf of all, since the L2 could not feed tiles of this size otherwise.
#ifndef TILE_LAG
#define TILE_LAG 0
#endif
namespace asynct::cuda {

template <int kGroupCount, int kOutputCount, int kTokenBlockCount, int kOutputBlockCount, bool kSumOfParts>
struct TileTraits {
  static constexpr int kGroups = kGroupCount;              // warpgroups that multiply
  static constexpr int kTokens = 64 * kGroups;             // of a tile
  static constexpr int kOutputs = kOutputCount;            // of a tile
  static constexpr int kTokenBlocks = kTokenBlockCount;    // of a cluster; they share weights
  static constexpr int kOutputBlocks = kOutputBlockCount;  // they share inputs
  static constexpr int kCluster = kTokenBlocks * kOutputBlocks;
  static constexpr bool kParts = kSumOfParts;  // whether K may have several
  static constexpr int kInputBytes = kTokens * 128;
  static constexpr int kWeightBytes = kOutputs * 128;
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kInputShare = kTokens / kOutputBlocks;  // rows that a block asks for
  static constexpr int kWeightShare = kOutputs / kTokenBlocks;
  static constexpr int kInputBox = tile_box(kInputShare);
  static constexpr int kWeightBox = tile_box(kWeightShare);
  static constexpr int kStagedBytes = StagedRows<kOutputs>::kBytes;  // of a warp's results
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int shared_bytes(int stages) {
    return stages * (kStageBytes + 16) + 4 * kGroups * kStagedBytes;
  }
};

template <class Traits>
struct TileShared {
  std::uint32_t base;
  int stages;
  __device__ std::uint32_t input(int stage) const { return base + stage * Traits::kStageBytes; }
  __device__ std::uint32_t weight(int stage) const { return input(stage) + Traits::kInputBytes; }
  /// Of one of the warps that multiply.
  __device__ std::uint32_t staged(int warp) const { return input(stages) + warp * Traits::kStagedBytes; }
  __device__ std::uint32_t full(int stage) const { return staged(4 * Traits::kGroups) + 8 * stage; }
  __device__ std::uint32_t free(int stage) const { return full(stages + stage); }
};

/// A block's place in its cluster.
template <class Traits>
struct TilePlace {
  int rank = Traits::kCluster == 1 ? 0 : static_cast<int>(cluster_rank());
  int token = rank % Traits::kTokenBlocks;
  int output = rank / Traits::kTokenBlocks;

  /// Blocks with the same outputs, as bits.
  __device__ std::uint16_t sharing_weights() const {
    return static_cast<std::uint16_t>(((1 << Traits::kTokenBlocks) - 1) << (output * Traits::kTokenBlocks));
  }
  __device__ std::uint16_t sharing_inputs() const {
    int blocks = 0;
#pragma unroll
    for (int o = 0; o < Traits::kOutputBlocks; ++o) blocks |= 1 << (token + o * Traits::kTokenBlocks);
    return static_cast<std::uint16_t>(blocks);
  }
  /// The blocks whose copies write here, and to which this one's write: itself and those of the same row or
  /// column of the cluster.
  static constexpr int kNeighbours = Traits::kTokenBlocks + Traits::kOutputBlocks - 1;
  __device__ int neighbour(int i) const {
    if (i < Traits::kTokenBlocks) return output * Traits::kTokenBlocks + i;
    const int other = (output + 1 + i - Traits::kTokenBlocks) % Traits::kOutputBlocks;
    return token + other * Traits::kTokenBlocks;
  }
};

/// The tiles of a block, one after the other: a group's token tiles first, so that a weight tile is read by
/// all of them at about the same time and the group's tokens stay in the L2. Where a tile lies takes
/// divisions, as long as a step: it is found once a tile.
template <class Traits>
class TileSequence {
 public:
  __device__ explicit TileSequence(const TileArgs& args)
      : args_(args), index_(static_cast<int>(blockIdx.x) / Traits::kCluster) {
    locate();
  }
  __device__ bool ended() const { return index_ >= args_.token_tiles * args_.output_tiles; }
  __device__ void next() {
    index_ += static_cast<int>(gridDim.x) / Traits::kCluster;
    locate();
  }
  __device__ int first_token() const { return first_token_; }
  __device__ int first_output() const { return first_output_; }

 private:
  __device__ void locate() {
    const int in_groups = args_.group * args_.output_tiles;  // tiles of a group
    const int group = index_ / in_groups;
    const int tiles = min(args_.group, args_.token_tiles - group * args_.group);
    const int in_group = index_ - group * in_groups;
    if (tiles < 1) return;  // after the last
    const int output = in_group / tiles;
    const int token = group * args_.group + in_group - output * tiles;
    const TilePlace<Traits> place;
    first_token_ = (token * Traits::kTokenBlocks + place.token) * Traits::kTokens;
    first_output_ = (output * Traits::kOutputBlocks + place.output) * Traits::kOutputs;
  }

  const TileArgs& args_;
  int index_;
  int first_token_ = 0;
  int first_output_ = 0;
};

/// One thread that asks for all steps of all tiles.
template <class Traits>
class TileProducer {
 public:
  __device__ TileProducer(const TileArgs& args, TileShared<Traits> shared)
      : args_(args), shared_(shared), steps_(args.parts * args.steps) {}

  __device__ void run() {
    // Weights need nothing of the kernel before.
    for (Next next = {TileSequence<Traits>(args_)}; next.round == 0 && !next.tile.ended(); advance(next)) {
      barrier_arrive_expect(shared_.full(next.stage), Traits::kStageBytes);
      load_weight(next);
    }
    wait_for_launcher();
    Next next = {TileSequence<Traits>(args_)};
    for (; next.round == 0 && !next.tile.ended(); advance(next)) load_input(next);
    for (; !next.tile.ended(); advance(next)) {
      barrier_wait(shared_.free(next.stage), (next.round - 1) & 1);
      barrier_arrive_expect(shared_.full(next.stage), Traits::kStageBytes);
      load_weight(next);
      load_input(next);
    }
  }

 private:
  struct Next {
    TileSequence<Traits> tile;
    int step = 0;
    int stage = 0;
    int round = 0;
  };

  __device__ void advance(Next& next) {
    if (++next.stage == shared_.stages) next.stage = 0, ++next.round;
    if (++next.step == steps_) next.step = 0, next.tile.next();
  }
  __device__ void load_weight(const Next& next) {
    const int share = Traits::kTokenBlocks == 1 ? 0 : place_.token * Traits::kWeightShare;
#pragma unroll
    for (int row = 0; row < Traits::kWeightShare; row += Traits::kWeightBox)
      load<Traits::kTokenBlocks>(shared_.weight(next.stage) + (share + row) * 128, args_.weight, next,
                                 place_.sharing_weights(), next.tile.first_output() + share + row);
  }
  __device__ void load_input(const Next& next) {
    const int share = Traits::kOutputBlocks == 1 ? 0 : place_.output * Traits::kInputShare;
#pragma unroll
    for (int row = 0; row < Traits::kInputShare; row += Traits::kInputBox)
      load<Traits::kOutputBlocks>(shared_.input(next.stage) + (share + row) * 128, args_.input, next,
                                  place_.sharing_inputs(), next.tile.first_token() + share + row);
  }
  template <int kBlocks>
  __device__ void load(std::uint32_t to, const CUtensorMap& map, const Next& next, std::uint16_t blocks,
                       int row) {
    if constexpr (kBlocks == 1)
      tma_load(to, map, shared_.full(next.stage), 0, row, next.step, 0, 0);
    else
      tma_load_multicast(to, map, shared_.full(next.stage), blocks, 0, row, next.step, 0, 0);
  }

  const TileArgs& args_;
  TileShared<Traits> shared_;
  TilePlace<Traits> place_;
  int steps_;
};

/// 64 tokens of each tile.
template <class Traits, class Epilogue>
class TileConsumer {
 public:
  __device__ TileConsumer(const TileArgs& args, const Epilogue& epilogue, TileShared<Traits> shared,
                          int group)
      : args_(args),
        shared_(shared),
        group_(group),
        store_(epilogue, shared.staged(static_cast<int>(threadIdx.x) / 32)) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < TilePlace<Traits>::kNeighbours)
      free_ = cluster_address(shared_.free(0), static_cast<std::uint32_t>(place_.neighbour(lane)));
  }

  __device__ void run() {
    if constexpr (Traits::kGroups == 2 && TILE_LAG > 0) {
      if (group_ == 1) barrier_sync(1, 256);
    }
    for (TileSequence<Traits> tile(args_); !tile.ended(); tile.next()) {
      const StorePlace place = {tile.first_token() + 16 * (static_cast<int>(threadIdx.x) / 32),
                                tile.first_output(), args_.rows, args_.outputs};
      if constexpr (Traits::kParts) {
        for (int part = 0; part < args_.parts; ++part) {
          if (part == args_.parts - 1) store_.prepare(place);
          multiply();
#pragma unroll
          for (int i = 0; i < kSums; ++i) total_[i] = part == 0 ? sum_[i] : total_[i] + sum_[i];
        }
        store_.store(total_, place);
      } else {
        store_.prepare(place);
        multiply();
        store_.store(sum_, place);
      }
    }
    copy_to_global_wait();
  }

 private:
  static constexpr int kSums = Traits::kOutputs / 2;

  /// A part's sum.
  __device__ void multiply() {
    for (int step = 0; step < args_.steps; ++step) {
      barrier_wait(shared_.full(stage_), round_ & 1);
      const std::uint64_t input = wgmma::operand(shared_.input(stage_) + group_ * 64 * 128, 1024, 16);
      const std::uint64_t weight = wgmma::operand(shared_.weight(stage_), 1024, 16);
      wgmma::fence();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        wgmma::SharedProduct<Traits::kOutputs, 0>::multiply(
            wgmma::advance(input, 32 * k), wgmma::advance(weight, 32 * k), sum_, step > 0 || k > 0);
      wgmma::commit();
      if constexpr (Traits::kGroups == 2 && TILE_LAG > 0) {
        if (group_ == 0 && ++done_ == TILE_LAG) barrier_arrive(1, 256);
      }
      if (step > 0) {
        wgmma::wait<1>();
        release(stage_ == 0 ? shared_.stages - 1 : stage_ - 1);
      }
      if (++stage_ == shared_.stages) stage_ = 0, ++round_;
    }
    wgmma::wait<0>();
    wgmma::touch(sum_);
    release(stage_ == 0 ? shared_.stages - 1 : stage_ - 1);
  }

  /// To all blocks whose copies write here.
  __device__ void release(int stage) {
    if (threadIdx.x % 32 < TilePlace<Traits>::kNeighbours) barrier_arrive_cluster(free_ + 8 * stage);
  }

  const TileArgs& args_;
  TileShared<Traits> shared_;
  TilePlace<Traits> place_;
  const int group_;
  TileStore<Traits::kOutputs, Epilogue> store_;
  std::uint32_t free_ = 0;  // a neighbour's first, by lane
  float sum_[kSums];
  float total_[Traits::kParts ? kSums : 1];
  int stage_ = 0;
  int round_ = 0;
  int done_ = 0;
};

template <class Traits, class Epilogue>
__global__ void __launch_bounds__(Traits::kThreads, 1)
    tile_kernel(const __grid_constant__ TileArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const TileShared<Traits> shared = {shared_address(memory), args.stages};
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    launch_dependents();
    for (int i = 0; i < args.stages; ++i) {
      barrier_init(shared.full(i), 1);
      barrier_init(shared.free(i), 4 * Traits::kGroups * TilePlace<Traits>::kNeighbours);
    }
    barrier_init_fence();
  }
  __syncwarp();
  if constexpr (Traits::kCluster > 1) {
    cluster_arrive_relaxed();
    cluster_wait();
  } else {
    __syncthreads();
  }
  if (group == Traits::kGroups) {
    if constexpr (Traits::kGroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128 * Traits::kGroups) TileProducer<Traits>(args, shared).run();
  } else {
    if constexpr (Traits::kGroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_launcher();
    TileConsumer<Traits, Epilogue>(args, epilogue, shared, group).run();
  }
  if constexpr (Traits::kCluster > 1) {
    __syncwarp();
    cluster_arrive_relaxed();  // the other blocks' copies and arrivals come here
    cluster_wait();
  }
}

}  // namespace asynct::cuda
