#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/divider.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/vector.cuh"
#include "asynct/ops/norm/cuda/channels.cuh"
#include "asynct/ops/norm/cuda/rms_policy.h"

// The frame of kernels with an RMS norm: a block reads its vectors into shared memory as floats, adds up
// their squares there, and goes over them again. What is added in what order is the CPU's: 16 lanes, each an
// FMA after another, then a tree. In float the results are equal bit for bit.
//
// Of an Op:
//   Args                  what the launch passes
//   kVector               channels a thread moves at a time
//   prefetch(args, dims)  static; runs before the kernel before has ended: may read parameters
//   run(args, block)      static; with the block's functions
namespace asynct::cuda {

template <class Args>
struct RmsLaunch {
  Args args;
  std::int32_t vectors;
  std::int32_t dims;
  std::int32_t vectors_a_block;
  Divider heads;        // vectors of a row
  Divider pieces;       // of a vector
  Divider half_pieces;  // of half a vector
};

template <int kVector>
class RmsBlock {
 public:
  template <class Launch>
  __device__ RmsBlock(const Launch& launch, float* shared)
      : heads_(launch.heads),
        pieces_(launch.pieces),
        half_pieces_(launch.half_pieces),
        first_(static_cast<int>(blockIdx.x) * launch.vectors_a_block),
        count_(min(launch.vectors - first_, launch.vectors_a_block)),
        dims_(launch.dims),
        shared_(shared) {}

  /// read(row, head, channel, x) of all pieces; several are asked for before the first is used.
  template <class Read>
  __device__ void fill(const Read& read) {
    constexpr int kAhead = 4;
    const int all = count_ * (dims_ / kVector);
    for (int begin = threadIdx.x; begin < all; begin += kAhead * kRmsThreads) {
      float x[kAhead][kVector];
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        const int vector = pieces_.quotient(i);
        if (i < all) read(row_of(vector), head_of(vector), pieces_.remainder(i) * kVector, x[ahead]);
      }
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        if (i < all) store_vector(at(pieces_.quotient(i)) + pieces_.remainder(i) * kVector, x[ahead]);
      }
    }
  }

  /// 1 / sqrt(mean(x^2) + epsilon_of(head)) of each vector, for what comes next.
  template <class EpsilonOf>
  __device__ void find_factors(const EpsilonOf& epsilon_of) {
    constexpr int kAtATime = kRmsThreads / kRmsLanes;
    const int lane = threadIdx.x % kRmsLanes;
    __syncthreads();
    // A warp has two vectors, or one and the same again, or none and leaves the others in peace.
    for (int first = static_cast<int>(threadIdx.x) / 32 * 2; first < count_; first += kAtATime) {
      const int vector = first + static_cast<int>(threadIdx.x) % 32 / kRmsLanes;
      float* const x = at(min(vector, count_ - 1));
      float sum = sum_of_squares(x + lane, dims_ - lane);
#pragma unroll
      for (int step = kRmsLanes / 2; step > 0; step /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
      const float mean = __fdiv_rn(sum, static_cast<float>(dims_));
      if (lane == 0 && vector < count_)
        x[dims_] = __fdiv_rn(1.F, __fsqrt_rn(__fadd_rn(mean, epsilon_of(head_of(vector)))));
    }
    __syncthreads();
  }

  /// x = change(row, head, channel, x, factor, gamma), then for good in shared memory, of all pieces; gamma
  /// the norm's, read ahead.
  template <class Change>
  __device__ void change(const RmsParams* norm, const Change& change) {
    each(norm, [&](int row, int head, int channel, float(&x)[kVector], float factor,
                   const float(&gamma)[kVector], float* place) {
      change(row, head, channel, x, factor, gamma);
      store_vector(place, x);
    });
  }

  /// use(row, head, channel, x, factor, gamma) of all pieces.
  template <class Use>
  __device__ void use(const RmsParams& norm, const Use& use) const {
    each(&norm, [&](int row, int head, int channel, float(&x)[kVector], float factor,
                    const float(&gamma)[kVector], float*) { use(row, head, channel, x, factor, gamma); });
  }

  /// use(row, head, channel, low, high, factor) of pieces of the lower half of each vector and those of the
  /// upper half that they are rotated with.
  template <class Use>
  __device__ void use_halves(const Use& use) const {
    const int all = count_ * (dims_ / (2 * kVector));
    for (int i = threadIdx.x; i < all; i += kRmsThreads) {
      const int vector = half_pieces_.quotient(i), channel = half_pieces_.remainder(i) * kVector;
      const float* const x = at(vector);
      float low[kVector], high[kVector];
      load_vector(x + channel, low);
      load_vector(x + channel + dims_ / 2, high);
      use(row_of(vector), head_of(vector), channel, low, high, x[dims_]);
    }
  }

 private:
  /// Of every kRmsLanes-th of `left` floats, one after the other. Loads of eight come before their additions.
  static __device__ float sum_of_squares(const float* x, int left) {
    constexpr int kAhead = 8;
    float sum = 0;
    for (; left > (kAhead - 1) * kRmsLanes; left -= kAhead * kRmsLanes, x += kAhead * kRmsLanes) {
      float values[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) values[i] = x[i * kRmsLanes];
#pragma unroll
      for (const float value : values) sum = __fmaf_rn(value, value, sum);
    }
    for (; left > 0; left -= kRmsLanes, x += kRmsLanes) sum = __fmaf_rn(*x, *x, sum);
    return sum;
  }

  __device__ float* at(int vector) const { return shared_ + vector * rms_stride(dims_); }
  __device__ int row_of(int vector) const { return heads_.quotient(first_ + vector); }
  __device__ int head_of(int vector) const { return heads_.remainder(first_ + vector); }

  template <class Visit>
  __device__ void each(const RmsParams* norm, const Visit& visit) const {
    constexpr int kAhead = 2;
    const int all = count_ * (dims_ / kVector);
    for (int begin = threadIdx.x; begin < all; begin += kAhead * kRmsThreads) {
      float gamma[kAhead][kVector] = {};
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        if (i < all && norm != nullptr)
          load_channels(norm->gamma, pieces_.remainder(i) * kVector, gamma[ahead]);
      }
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        if (i >= all) break;
        const int vector = pieces_.quotient(i), channel = pieces_.remainder(i) * kVector;
        float* const place = at(vector) + channel;
        float x[kVector];
        load_vector(place, x);
        visit(row_of(vector), head_of(vector), channel, x, at(vector)[dims_], gamma[ahead], place);
      }
    }
  }

  const Divider heads_, pieces_, half_pieces_;
  int first_;
  int count_;
  int dims_;
  float* shared_;
};

/// x = gamma * (x * factor).
template <int kVector>
__device__ inline void apply_rms(const float (&gamma)[kVector], float factor, float (&x)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = __fmul_rn(gamma[i], __fmul_rn(x[i], factor));
}

/// Brings gamma closer while the kernel waits for the one before.
template <int kVector>
__device__ inline void prefetch_rms(const RmsParams& norm, int dims) {
  if (!norm.gamma.per_channel) return;
  for (int channel = threadIdx.x * kVector; channel < dims; channel += kRmsThreads * kVector)
    asm volatile("prefetch.global.L1 [%0];" ::"l"(norm.gamma.values + channel));
}

template <class Op>
__global__ void __launch_bounds__(kRmsThreads)
    rms_kernel(const __grid_constant__ RmsLaunch<typename Op::Args> launch) {
  extern __shared__ float4 shared[];
  launch_dependents();
  Op::prefetch(launch.args, launch.dims);
  wait_for_launcher();
  RmsBlock<Op::kVector> block(launch, reinterpret_cast<float*>(shared));
  Op::run(launch.args, block);
}

/// Launches Op over rows of `heads` vectors of `dims`.
template <class Op>
void run_rms(const char* name, const typename Op::Args& args, std::int64_t rows, std::int32_t heads,
             std::int32_t dims, cudaStream_t stream) {
  if (dims > kMostRmsDims) fail(name, ": vectors of ", dims, ", expected at most ", kMostRmsDims);
  const std::int64_t vectors = rows * heads;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() - kRmsElements;
  if (vectors < 0 || vectors > kMost) fail(name, ": ", vectors, " vectors, expected 0 to ", kMost);
  if (vectors == 0) return;
  const RmsGrid grid = rms_grid(vectors, dims);
  const RmsLaunch<typename Op::Args> launch = {.args = args,
                                               .vectors = static_cast<std::int32_t>(vectors),
                                               .dims = dims,
                                               .vectors_a_block = grid.vectors,
                                               .heads = Divider(heads),
                                               .pieces = Divider(dims / Op::kVector),
                                               .half_pieces = Divider(std::max(1, dims / (2 * Op::kVector)))};
  constexpr int kWithoutAsking = 48 * 1024;
  if (grid.shared_bytes > kWithoutAsking) {
    const int most = most_shared_bytes();
    if (grid.shared_bytes > most)
      fail(name, ": vectors of ", dims, ", expected at most ", rms_most_dims(most),
           ", what this device's shared memory holds");
    prepare<rms_kernel<Op>>(most);
  }
  launch_overlapped(rms_kernel<Op>, name, dim3(static_cast<unsigned>(grid.blocks)), dim3(kRmsThreads), launch,
                    stream, grid.shared_bytes);
}

}  // namespace asynct::cuda
