#pragma once

#include <cstdint>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device.h"
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
//   run(args, block)      static; with the block's functions
namespace asynct::cuda {

template <int kVector>
class RmsBlock {
 public:
  __device__ RmsBlock(std::int64_t vectors, int dims, int vectors_a_block, float* shared)
      : first_(static_cast<std::int64_t>(blockIdx.x) * vectors_a_block),
        count_(static_cast<int>(min(vectors - first_, static_cast<std::int64_t>(vectors_a_block)))),
        dims_(dims),
        shared_(shared) {}

  /// read(vector, channel, x) of all pieces; the reads of several are in flight at a time.
  template <class Read>
  __device__ void fill(const Read& read) {
    constexpr int kAhead = 4;
    const int pieces = dims_ / kVector, all = count_ * pieces;
    for (int begin = threadIdx.x; begin < all; begin += kAhead * kRmsThreads) {
      float x[kAhead][kVector];
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        if (i < all) read(first_ + i / pieces, i % pieces * kVector, x[ahead]);
      }
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int i = begin + ahead * kRmsThreads;
        if (i < all) store_vector(at(i / pieces) + i % pieces * kVector, x[ahead]);
      }
    }
  }

  /// 1 / sqrt(mean(x^2) + epsilon_of(vector)) of each vector, for what comes next.
  template <class EpsilonOf>
  __device__ void find_factors(const EpsilonOf& epsilon_of) {
    constexpr int kAtATime = kRmsThreads / kRmsLanes;
    const int lane = threadIdx.x % kRmsLanes;
    __syncthreads();
    for (int begin = 0; begin < count_; begin += kAtATime) {
      const int vector = begin + static_cast<int>(threadIdx.x) / kRmsLanes;
      float* const x = at(min(vector, count_ - 1));
      float sum = 0;
#pragma unroll 8
      for (int i = lane; i < dims_; i += kRmsLanes) sum = __fmaf_rn(x[i], x[i], sum);
#pragma unroll
      for (int step = kRmsLanes / 2; step > 0; step /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, step));
      const float mean = __fdiv_rn(sum, static_cast<float>(dims_));
      if (lane == 0 && vector < count_)
        x[dims_] = __fdiv_rn(1.F, __fsqrt_rn(__fadd_rn(mean, epsilon_of(first_ + vector))));
    }
    __syncthreads();
  }

  /// change(vector, channel, x, factor) of all pieces, which then are what it left in x.
  template <class Change>
  __device__ void change(const Change& change) {
    each([&](std::int64_t vector, int channel, float(&x)[kVector], float factor, float* place) {
      change(vector, channel, x, factor);
      store_vector(place, x);
    });
  }

  /// use(vector, channel, x, factor) of all pieces.
  template <class Use>
  __device__ void use(const Use& use) const {
    each([&](std::int64_t vector, int channel, float(&x)[kVector], float factor, float*) {
      use(vector, channel, x, factor);
    });
  }

  /// use(vector, channel, low, high, factor) of pieces of the lower half of each vector and those of the
  /// upper half that they are rotated with.
  template <class Use>
  __device__ void use_halves(const Use& use) const {
    const int pieces = dims_ / (2 * kVector);
    for (int i = threadIdx.x; i < count_ * pieces; i += kRmsThreads) {
      const int vector = i / pieces, channel = i % pieces * kVector;
      const float* const x = at(vector);
      float low[kVector], high[kVector];
      load_vector(x + channel, low);
      load_vector(x + channel + dims_ / 2, high);
      use(first_ + vector, channel, low, high, x[dims_]);
    }
  }

 private:
  __device__ float* at(int vector) const { return shared_ + vector * rms_stride(dims_); }

  template <class Visit>
  __device__ void each(const Visit& visit) const {
    const int pieces = dims_ / kVector;
    for (int i = threadIdx.x; i < count_ * pieces; i += kRmsThreads) {
      const int vector = i / pieces, channel = i % pieces * kVector;
      float* const place = at(vector) + channel;
      float x[kVector];
      load_vector(place, x);
      visit(first_ + vector, channel, x, at(vector)[dims_], place);
    }
  }

  std::int64_t first_;
  int count_;
  int dims_;
  float* shared_;
};

/// x = gamma * (x * factor), channels from `channel` on.
template <int kVector>
__device__ inline void apply_rms(const RmsParams& norm, int channel, float factor, float (&x)[kVector]) {
  float gamma[kVector];
  load_channels(norm.gamma, channel, gamma);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = __fmul_rn(gamma[i], __fmul_rn(x[i], factor));
}

template <class Args>
struct RmsLaunch {
  Args args;
  std::int64_t vectors;
  std::int32_t dims;
  std::int32_t vectors_a_block;
};

template <class Op>
__global__ void __launch_bounds__(kRmsThreads)
    rms_kernel(const __grid_constant__ RmsLaunch<typename Op::Args> launch) {
  extern __shared__ float4 shared[];
  launch_dependents();
  wait_for_launcher();
  RmsBlock<Op::kVector> block(launch.vectors, launch.dims, launch.vectors_a_block,
                              reinterpret_cast<float*>(shared));
  Op::run(launch.args, block);
}

/// Launches Op over `vectors` vectors of `dims`.
template <class Op>
void run_rms(const char* name, const typename Op::Args& args, std::int64_t vectors, std::int32_t dims,
             cudaStream_t stream) {
  if (dims > kMostRmsDims) fail(name, ": vectors of ", dims, ", expected at most ", kMostRmsDims);
  if (vectors < 0 || vectors > std::numeric_limits<std::int32_t>::max())
    fail(name, ": ", vectors, " vectors, expected 0 to 2^31 - 1");
  if (vectors == 0) return;
  const RmsGrid grid = rms_grid(vectors, dims);
  prepare<rms_kernel<Op>>(rms_stride(kMostRmsDims) * static_cast<int>(sizeof(float)));
  launch_overlapped(rms_kernel<Op>, name, dim3(static_cast<unsigned>(grid.blocks)), dim3(kRmsThreads),
                    RmsLaunch<typename Op::Args>{args, vectors, dims, grid.vectors}, stream,
                    grid.shared_bytes);
}

}  // namespace asynct::cuda
