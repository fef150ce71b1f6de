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
// Weights are the left operand (64 rows), tokens the right one (8 to 64 columns): a column's sum does not
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
  /// Own sums, and where there are several parts also the sums received.
  static constexpr int sums_bytes(int parts) { return parts == 1 ? kSumBytes : 2 * kSumBytes; }
  static constexpr int shared_bytes(int stages, int input_slots, int parts) {
    return 1024 + stages * kWeightBytes + input_slots * kInputBytes + sums_bytes(parts) +
           8 * (2 * stages + 1);
  }
};

/// Where things lie in shared memory.
template <class Traits>
struct StreamShared {
  std::uint32_t base;
  int stage_count;
  int input_slots;
  int parts;

  __device__ std::uint32_t weight(int stage) const { return base + stage * Traits::kWeightBytes; }
  __device__ std::uint32_t input(int slot) const { return weight(stage_count) + slot * Traits::kInputBytes; }
  __device__ std::uint32_t sums() const { return input(input_slots); }
  /// Of the other parts, in their order; the place of the block's own stays empty.
  __device__ std::uint32_t received_sums() const { return sums() + Traits::kSumBytes; }
  __device__ std::uint32_t full(int stage) const { return sums() + Traits::sums_bytes(parts) + 8 * stage; }
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
    barrier_arrive_expect(shared_.received(), Traits::kSumBytes - Traits::kSumBytes / args_.parts);
    for (next_ = {}; next_.count < min(args_.stages, total_); advance()) load_weight(next_.count);
  }

  /// After the kernel before has ended.
  __device__ void run() {
    for (next_ = {}; next_.count < min(args_.stages, total_); advance()) load_input(next_.count);
    int stage = 0;
    int round = 0;
    for (; next_.count < total_; advance()) {
      barrier_wait(shared_.free(stage), round & 1);
      load_weight(stage);
      load_input(stage);
      if (++stage == args_.stages) stage = 0, ++round;
    }
  }

 private:
  struct Next {
    int count = 0;  // of steps asked for
    int tile = 0;   // of this block
    int step = 0;   // of the tile
  };

  __device__ void advance() {
    ++next_.count;
    if (++next_.step == args_.steps) next_.step = 0, ++next_.tile;
  }
  __device__ int half() const { return (place_.part * args_.steps + next_.step) * Traits::kHalves; }
  __device__ void load_weight(int stage) {
    barrier_arrive_expect(shared_.full(stage),
                          Traits::kWeightBytes + (needs_input() ? Traits::kInputBytes : 0));
    const int row = (place_.tile + next_.tile * place_.tile_step) * Traits::kGroups * kStreamRows;
    for (int g = 0; g < Traits::kGroups; ++g)
      tma_load(shared_.weight(stage) + g * Traits::kGroupBytes, args_.weight, shared_.full(stage), 0,
               row + g * kStreamRows, half(), 0, 0);
  }
  __device__ void load_input(int stage) {
    if (!needs_input()) return;
    tma_load(shared_.input(args_.keeps_input ? next_.step : stage), args_.input, shared_.full(stage), 0,
             place_.first_token, half(), 0, 0);
  }
  /// Where it is kept, the first tile brings all of it.
  __device__ bool needs_input() const { return !args_.keeps_input || next_.tile == 0; }

  const StreamArgs& args_;
  StreamShared<Traits> shared_;
  StreamPlace place_;
  int total_;
  Next next_;
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

  /// What can be read before the kernel before has ended.
  __device__ void start() { load_factors_of(0); }

  __device__ void run() {
    for (int i = 0; i < place_.tiles; ++i) {
      if (i > 0) load_factors_of(i);
      const int first = first_output(i);
      Loaded loaded = {};
      if (wanted(thread_, first))
        loaded = load_before(epilogue_, token_of(thread_), first + pair_of(thread_));
      multiply();
      send();
      finish(first, loaded);
      if (i + 1 < place_.tiles) barrier_sync(Traits::kGroups == 1 ? 1 : 1 + group_, 128);
    }
  }

 private:
  using Factors = decltype(load_factors(std::declval<Epilogue>(), 0));
  using Loaded = decltype(load_before(std::declval<Epilogue>(), 0, 0));

  // The block finishes 1 / parts of a tile's weight rows, and the thread the pairs of outputs and tokens i =
  // thread, thread + 128, ...; all of them the same outputs.
  __device__ int pairs() const { return kStreamRows / 2 / args_.parts; }
  __device__ int pair_of(int i) const { return 2 * (i & (pairs() - 1)); }
  __device__ int token_of(int i) const { return place_.first_token + (i >> (31 - __clz(pairs()))); }
  __device__ int first_output(int i) const {
    const int tile = place_.tile + i * place_.tile_step;
    return (tile * Traits::kGroups + group_) * kStreamRows + place_.part * 2 * pairs();
  }
  __device__ bool wanted(int i, int first) const {
    return token_of(i) < min(args_.rows, place_.first_token + Traits::kTokens) &&
           first + pair_of(i) < args_.outputs;
  }
  __device__ void load_factors_of(int i) {
    const int n = first_output(i) + pair_of(thread_);
    if (n < args_.outputs) factors_ = load_factors(epilogue_, n);
  }

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

  /// Each sum to the block that finishes its weight row; the block's own share stays where it is.
  __device__ void send() {
    const std::uint32_t sums = shared_.sums() + group_ * Traits::kGroupSumBytes;
    const int lane = thread_ % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = thread_ / 32 * 16 + lane / 4 + 8 * h;
      const std::uint32_t to = sums + 4 * (row * Traits::kSumStride + 2 * (lane % 4));
#pragma unroll
      for (int j = 0; j < Traits::kTokens / 8; ++j)
        store_shared(to + 32 * j, make_float2(sum_[4 * j + 2 * h], sum_[4 * j + 2 * h + 1]));
    }
    if (args_.parts > 1) fence_async_shared();
    barrier_sync(Traits::kGroups == 1 ? 1 : 1 + group_, 128);
    if (args_.parts == 1) return;
    if (thread_ < args_.parts && thread_ != place_.part) {
      const int bytes = Traits::kGroupSumBytes / args_.parts;
      const std::uint32_t to =
          shared_.received_sums() + group_ * Traits::kGroupSumBytes + place_.part * bytes;
      copy_to_block(cluster_address(to, thread_), sums + thread_ * bytes, bytes,
                    cluster_address(shared_.received(), thread_));
    }
    barrier_wait(shared_.received(), 0);
    __syncwarp();
    cluster_arrive_relaxed();
  }

  __device__ void finish(int first, Loaded loaded) {
    const int pair = pair_of(thread_);
    for (int i = thread_; i < pairs() * Traits::kTokens; i += 128) {
      if (!wanted(i, first)) continue;
      const int token = token_of(i);
      if (i >= 128) loaded = load_before(epilogue_, token, first + pair);
      const int at = pair * Traits::kSumStride + token - place_.first_token;
      const float* from = share(0) + at;
      float a = from[0];
      float b = from[Traits::kSumStride];
      for (int part = 1; part < args_.parts; ++part) {
        from = share(part) + at;
        a += from[0];
        b += from[Traits::kSumStride];
      }
      store_outputs(epilogue_, token, first + pair, a, b, factors_, loaded);
    }
  }

  /// The sums of a part for the rows that this block finishes: received, or its own.
  __device__ const float* share(int part) const {
    return sums_ + part * 2 * pairs() * Traits::kSumStride +
           (part == place_.part ? 0 : Traits::kSumBytes / 4);
  }

  const StreamArgs& args_;
  const Epilogue& epilogue_;
  StreamShared<Traits> shared_;
  StreamPlace place_;
  const float* sums_;
  const int group_;
  const int thread_;
  Factors factors_ = {};
  float sum_[Traits::kTokens / 2];
  int stage_ = 0;
  int round_ = 0;
};

template <class Traits, class Epilogue>
__global__ void __launch_bounds__(Traits::kThreads)
    stream_kernel(const __grid_constant__ StreamArgs args, const __grid_constant__ Epilogue epilogue) {
  extern __shared__ unsigned char memory[];
  const std::uint32_t padding = (1024 - (shared_address(memory) & 1023)) & 1023;
  const StreamShared<Traits> shared = {shared_address(memory) + padding, args.stages, args.input_slots,
                                       args.parts};
  const StreamPlace place = stream_place<Traits::kTokens>(args);
  StreamProducer<Traits> producer(args, shared, place);
  const bool produces = threadIdx.x == Traits::kProducer;
  if (produces) {
    launch_dependents();
    tma_prefetch(args.input);
    producer.start();
  }
  __syncwarp();
  if (args.parts > 1) {
    cluster_arrive_relaxed();
    cluster_wait();
  } else {
    __syncthreads();
  }
  if (threadIdx.x >= Traits::kProducer) {
    wait_for_launcher();
    if (produces) producer.run();
    __syncwarp();
    if (args.parts > 1) cluster_arrive_relaxed();
  } else {
    StreamConsumer<Traits, Epilogue> consumer(
        args, epilogue, shared, place,
        reinterpret_cast<const float*>(memory + padding + (shared.sums() - shared.base)),
        static_cast<int>(threadIdx.x) / 128);
    consumer.start();
    wait_for_launcher();
    consumer.run();
  }
  __syncwarp();
  if (args.parts > 1) cluster_wait();  // until then the other blocks read this one's sums
}

}  // namespace asynct::cuda
