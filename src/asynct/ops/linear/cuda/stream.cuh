#pragma once

#include <utility>

#include "asynct/ops/cuda/barrier.cuh"
#include "asynct/ops/cuda/cluster.cuh"
#include "asynct/ops/cuda/copy_async.cuh"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/tma.cuh"
#include "asynct/ops/cuda/wgmma.cuh"
#include "asynct/ops/linear/cuda/args.h"
#include "asynct/ops/linear/cuda/epilogue.cuh"
#include "asynct/ops/linear/cuda/policy.h"

// Products of few rows (sm_90a), bound by the reading of the weights.
//
// Floor: 2 N K bytes at the read rate; 4.2 MB take 1 us, less than the way from one kernel to the next.
//
// So weights do not wait for the kernel before: a block asks for all of its weights that fit its stages as
// soon as it is there, and lets the next kernel's blocks in beside it to do the same. Only then it waits for
// its input. Blocks are small (64 weight rows, a part of K), so that several kernels' fit a multiprocessor.
//
// Weights are the left operand (64 rows), tokens the right one (8 to 128 columns): a column's sum does not
// know how many there are. The parts of K of the same weight rows are the blocks of a cluster; each finishes
// its share of the rows: the others send it their sums, which it adds in the order of the parts.
namespace asynct::cuda {

template <int kTokenTile, int kGroupCount>
struct StreamTraits {
  static constexpr int kTokens = kTokenTile;
  static constexpr int kGroups = kGroupCount;        // warpgroups that multiply, 64 weight rows each
  static constexpr int kHalves = kStreamDepth / 64;  // of a stage: 128-byte rows
  static constexpr int kWeightHalf = kStreamRows * 128;
  static constexpr int kInputHalf = kTokens * 128;
  static constexpr int kGroupBytes = kHalves * kWeightHalf;
  static constexpr int kWeightBytes = kGroups * kGroupBytes;
  static constexpr int kInputBytes = kHalves * kInputHalf;
  static constexpr int kSumStride = kTokens + 2;  // floats; lanes of different rows meet different banks
  static constexpr int kGroupSumBytes = kStreamRows * kSumStride * 4;
  static constexpr int kSumBytes = kGroups * kGroupSumBytes;
  static constexpr int kProducer = 128 * kGroups;  // a thread of the last warp
  static constexpr int kThreads = kProducer + 32;
  static constexpr int shared_bytes(int stages, int input_slots) {
    return 1024 + stages * kWeightBytes + input_slots * kInputBytes + kSumBytes + 8 * (2 * stages + 1);
  }
};

/// Where things lie in shared memory.
template <class Traits>
struct StreamShared {
  std::uint32_t base;
  int stage_count;
  int input_slots;

  __device__ std::uint32_t weight(int stage) const { return base + stage * Traits::kWeightBytes; }
  __device__ std::uint32_t input(int slot) const { return weight(stage_count) + slot * Traits::kInputBytes; }
  __device__ std::uint32_t sums() const { return input(input_slots); }
  __device__ std::uint32_t full(int stage) const { return sums() + Traits::kSumBytes + 8 * stage; }
  __device__ std::uint32_t free(int stage) const { return full(stage_count + stage); }
  __device__ std::uint32_t received() const { return full(2 * stage_count); }
};

/// A block's place: one part of K of tiles `tile`, tile + tile_step, ... times one tile of tokens.
struct StreamPlace {
  int part;
  int tile;
  int tile_step;
  int first_token;
  int tiles;  // how many
};

template <int kTokens>
__device__ inline StreamPlace stream_place(const StreamArgs& args) {
  StreamPlace place;
  place.part = static_cast<int>(blockIdx.x) % args.parts;
  place.tile = static_cast<int>(blockIdx.x) / args.parts;
  place.tile_step = static_cast<int>(gridDim.x) / args.parts;
  place.first_token = static_cast<int>(blockIdx.y) * kTokens;
  place.tiles = (args.tiles - place.tile + place.tile_step - 1) / place.tile_step;
  return place;
}

/// One thread asks for all stages.
template <class Traits>
class StreamProducer {
 public:
  __device__ StreamProducer(const StreamArgs& args, const StreamShared<Traits>& shared,
                            const StreamPlace& place)
      : args_(args), shared_(shared), place_(place), total_(place.tiles * args.steps) {}

  /// Before anything else: barriers, and the weights of the first stages.
  __device__ void start() {
    for (int i = 0; i < args_.stages; ++i) {
      barrier_init(shared_.full(i), 1);
      barrier_init(shared_.free(i), 4 * Traits::kGroups);
    }
    barrier_init(shared_.received(), 1);
    barrier_init_fence();
    barrier_arrive_expect(shared_.received(), Traits::kGroups * kStreamRows * Traits::kTokens * 4);
    for (int i = 0; i < min(args_.stages, total_); ++i) load_weight(i, i);
  }

  /// After the kernel before has ended.
  __device__ void run() {
    for (int i = 0; i < min(args_.stages, total_); ++i) load_input(i, i);
    int stage = 0;
    int round = 0;
    for (int i = args_.stages; i < total_; ++i) {
      barrier_wait(shared_.free(stage), round & 1);
      load_weight(i, stage);
      load_input(i, stage);
      if (++stage == args_.stages) stage = 0, ++round;
    }
  }

 private:
  __device__ int first_half(int i) const {
    return (place_.part * args_.steps + i % args_.steps) * Traits::kHalves;
  }
  __device__ void load_weight(int i, int stage) {
    barrier_arrive_expect(shared_.full(stage),
                          Traits::kWeightBytes + (needs_input(i) ? Traits::kInputBytes : 0));
    const int row = (place_.tile + i / args_.steps * place_.tile_step) * Traits::kGroups * kStreamRows;
    for (int g = 0; g < Traits::kGroups; ++g)
      tma_load(shared_.weight(stage) + g * Traits::kGroupBytes, args_.weight, shared_.full(stage), 0,
               row + g * kStreamRows, first_half(i), 0, 0);
  }
  __device__ void load_input(int i, int stage) {
    if (!needs_input(i)) return;
    tma_load(shared_.input(args_.keeps_input ? i : stage), args_.input, shared_.full(stage), 0,
             place_.first_token, first_half(i), 0, 0);
  }
  /// Where it is kept, the first tile brings all of it.
  __device__ bool needs_input(int i) const { return !args_.keeps_input || i < args_.steps; }

  const StreamArgs& args_;
  StreamShared<Traits> shared_;
  StreamPlace place_;
  int total_;
};

/// A warpgroup that multiplies.
template <class Traits, class Epilogue>
class StreamConsumer {
 public:
  __device__ StreamConsumer(const StreamArgs& args, const Epilogue& epilogue,
                            const StreamShared<Traits>& shared, const StreamPlace& place, const float* sums,
                            int group)
      : args_(args),
        epilogue_(epilogue),
        shared_(shared),
        place_(place),
        sums_(sums + group * (Traits::kGroupSumBytes / 4)),
        group_(group),
        thread_(static_cast<int>(threadIdx.x) % 128) {}

  __device__ void run() {
    const int pairs = kStreamRows / 2 / args_.parts;  // of outputs that this block finishes
    for (int i = 0; i < place_.tiles; ++i) {
      const int tile = place_.tile + i * place_.tile_step;
      const int first = (tile * Traits::kGroups + group_) * kStreamRows + place_.part * 2 * pairs;
      Loaded loaded = {};
      if (wanted(thread_, pairs, first))
        loaded = load_before(epilogue_, place_.first_token + thread_ / pairs, first + 2 * (thread_ % pairs));
      multiply();
      send();
      finish(pairs, first, loaded);
      if (i + 1 < place_.tiles) barrier_sync(Traits::kGroups == 1 ? 1 : 1 + group_, 128);
    }
  }

 private:
  using Loaded = decltype(load_before(std::declval<Epilogue>(), 0, 0));

  __device__ void multiply() {
    for (int step = 0; step < args_.steps; ++step) {
      barrier_wait(shared_.full(stage_), round_ & 1);
      const std::uint64_t weight =
          wgmma::operand(shared_.weight(stage_) + group_ * Traits::kGroupBytes, 1024, 16);
      const std::uint64_t input = wgmma::operand(shared_.input(args_.keeps_input ? step : stage_), 1024, 16);
      wgmma::fence();
#pragma unroll
      for (int k = 0; k < kStreamDepth / 16; ++k)
        wgmma::SharedProduct<Traits::kTokens, 0>::multiply(
            wgmma::advance(weight, k / 4 * Traits::kWeightHalf + k % 4 * 32),
            wgmma::advance(input, k / 4 * Traits::kInputHalf + k % 4 * 32), sum_, step > 0 || k > 0);
      wgmma::commit();
      if (step > 0) {
        wgmma::wait<1>();
        release(stage_ == 0 ? args_.stages - 1 : stage_ - 1);
      }
      if (++stage_ == args_.stages) stage_ = 0, ++round_;
    }
    wgmma::wait<0>();
    wgmma::touch(sum_);
    release(stage_ == 0 ? args_.stages - 1 : stage_ - 1);
  }

  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_.free(stage));
  }

  /// Each sum to the block that finishes its weight row.
  __device__ void send() {
    const int lane = thread_ % 32;
    const int share = kStreamRows / args_.parts;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = thread_ / 32 * 16 + lane / 4 + 8 * h;
      const std::uint32_t to =
          shared_.sums() + group_ * Traits::kGroupSumBytes +
          4 * ((place_.part * share + row % share) * Traits::kSumStride + 2 * (lane % 4));
      if (args_.parts == 1) {
#pragma unroll
        for (int j = 0; j < Traits::kTokens / 8; ++j)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + 32 * j), "f"(sum_[4 * j + 2 * h]),
                       "f"(sum_[4 * j + 2 * h + 1])
                       : "memory");
      } else {
        const std::uint32_t there = cluster_address(to, row / share);
        const std::uint32_t barrier = cluster_address(shared_.received(), row / share);
#pragma unroll
        for (int j = 0; j < Traits::kTokens / 8; ++j)
          store_async(there + 32 * j, sum_[4 * j + 2 * h], sum_[4 * j + 2 * h + 1], barrier);
      }
    }
    if (args_.parts == 1)
      barrier_sync(Traits::kGroups == 1 ? 1 : 1 + group_, 128);
    else
      barrier_wait(shared_.received(), 0);
  }

  __device__ bool wanted(int i, int pairs, int first) const {
    return i < pairs * Traits::kTokens && place_.first_token + i / pairs < args_.rows &&
           first + 2 * (i % pairs) < args_.outputs;
  }

  __device__ void finish(int pairs, int first, Loaded loaded) {
    for (int i = thread_; i < pairs * Traits::kTokens; i += 128) {
      if (!wanted(i, pairs, first)) continue;
      const int token = i / pairs;
      const int pair = i % pairs;
      const float* from = sums_ + 2 * pair * Traits::kSumStride + token;
      float a = from[0];
      float b = from[Traits::kSumStride];
      for (int part = 1; part < args_.parts; ++part) {
        from += 2 * pairs * Traits::kSumStride;
        a += from[0];
        b += from[Traits::kSumStride];
      }
      const int row = place_.first_token + token;
      const int n = first + 2 * pair;
      if (i >= 128) loaded = load_before(epilogue_, row, n);
      store_outputs(epilogue_, row, n, a, b, loaded);
    }
  }

  const StreamArgs& args_;
  const Epilogue& epilogue_;
  StreamShared<Traits> shared_;
  StreamPlace place_;
  const float* sums_;
  const int group_;
  const int thread_;
  float sum_[Traits::kTokens / 2];
  int stage_ = 0;
  int round_ = 0;
};

template <class Traits, class Epilogue>
__global__ void __launch_bounds__(Traits::kThreads)
    stream_kernel(const __grid_constant__ StreamArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ unsigned char memory[];
  const std::uint32_t padding = (1024 - (shared_address(memory) & 1023)) & 1023;
  const StreamShared<Traits> shared = {shared_address(memory) + padding, args.stages, args.input_slots};
  const StreamPlace place = stream_place<Traits::kTokens>(args);
  StreamProducer<Traits> producer(args, shared, place);
  const bool produces = threadIdx.x == Traits::kProducer;
  if (produces) {
    launch_dependents();
    producer.start();
  }
  __syncwarp();
  if (args.parts == 1)
    __syncthreads();
  else
    cluster_sync();
  wait_for_launcher();
  if (produces) producer.run();
  if (threadIdx.x < Traits::kProducer) {
    const float* const sums =
        reinterpret_cast<const float*>(memory + padding + (shared.sums() - shared.base));
    StreamConsumer<Traits, Epilogue>(args, epilogue, shared, place, sums, static_cast<int>(threadIdx.x) / 128)
        .run();
  }
}

}  // namespace asynct::cuda
