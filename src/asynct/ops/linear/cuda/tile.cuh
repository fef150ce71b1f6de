#pragma once

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"
#include "asynct/ops/linear/cuda/policy.h"
#include "asynct/ops/linear/cuda/tile_store.cuh"

// Products of more than a few rows (sm_90a), bound by the matrix units and by what the shared memory gives
// them.
//
// Floor: 2 T N K flops at the matrix rate.
//
// A block computes tiles of tokens and outputs: a producer warp asks the copy engine for steps of 64 inputs,
// a warpgroup multiplies 64 tokens. The sum of a part of K stays in the accumulators, the sum of the parts in
// as many other registers: that is the streaming kernel's order, and why a tile of 128 x 256 is there only
// where K has one part.
namespace asynct::cuda {

template <int kTokenCount, int kOutputCount, bool kSumOfParts>
struct TileTraits {
  static constexpr int kTokens = kTokenCount;
  static constexpr int kOutputs = kOutputCount;
  static constexpr bool kParts = kSumOfParts;       // whether K may have several
  static constexpr int kGroups = kTokenCount / 64;  // warpgroups that multiply
  static constexpr int kInputBytes = kTokens * 128;
  static constexpr int kWeightBytes = kOutputs * 128;
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kWeightBox = tile_box(kOutputs);
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

/// The tiles of a block, one after the other: a group's token tiles first, so that a weight tile is read by
/// all of them at about the same time and the group's tokens stay in the L2. Where a tile lies takes
/// divisions, as long as a step: it is found once a tile.
template <class Traits>
class TileSequence {
 public:
  __device__ explicit TileSequence(const TileArgs& args) : args_(args), index_(static_cast<int>(blockIdx.x)) {
    locate();
  }
  __device__ bool ended() const { return index_ >= args_.token_tiles * args_.output_tiles; }
  __device__ void next() {
    index_ += static_cast<int>(gridDim.x);
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
    first_token_ = token * Traits::kTokens;
    first_output_ = output * Traits::kOutputs;
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
#pragma unroll
    for (int row = 0; row < Traits::kOutputs; row += Traits::kWeightBox)
      tma_load(shared_.weight(next.stage) + row * 128, args_.weight, shared_.full(next.stage), 0,
               next.tile.first_output() + row, next.step, 0, 0);
  }
  __device__ void load_input(const Next& next) {
    tma_load(shared_.input(next.stage), args_.input, shared_.full(next.stage), 0, next.tile.first_token(),
             next.step, 0, 0);
  }

  const TileArgs& args_;
  TileShared<Traits> shared_;
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
        store_(epilogue, shared.staged(static_cast<int>(threadIdx.x) / 32)) {}

  __device__ void run() {
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

  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_.free(stage));
  }

  const TileArgs& args_;
  TileShared<Traits> shared_;
  const int group_;
  TileStore<Traits::kOutputs, Epilogue> store_;
  float sum_[kSums];
  float total_[Traits::kParts ? kSums : 1];
  int stage_ = 0;
  int round_ = 0;
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
      barrier_init(shared.free(i), 4 * Traits::kGroups);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (group == Traits::kGroups) {
    if constexpr (Traits::kGroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 128 * Traits::kGroups) TileProducer<Traits>(args, shared).run();
  } else {
    if constexpr (Traits::kGroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_launcher();
    TileConsumer<Traits, Epilogue>(args, epilogue, shared, group).run();
  }
}

}  // namespace asynct::cuda
