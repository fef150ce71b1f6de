#pragma once

#include "asynct/ops/attention/cuda/decode.cuh"
#include "asynct/ops/attention/cuda/prefill.cuh"

// Decode and prefill of one step in one launch (sm_90a): the first blocks stream keys and values of the
// decoding sequences, the others multiply, so that memory and matrix units are busy at the same time.
//
// Floor: the greater of decode's bytes at the read rate and prefill's flops at the matrix rate.
//
// A block that only streams reaches 45 GB/s so far, half as much again as its share of the memory: too little
// to gain by this (docs/notes/hopper-attention.md). Results are those of the separate kernels: a unit does
// not know who runs it.
namespace asynct::cuda {

template <class Decode, class Prefill>
struct MixedTraits {
  static constexpr int kThreads = Prefill::kThreads;
  static constexpr int kSharedBytes =
      DecodeLayout<Decode>::kSharedBytes > PrefillLayout<Prefill>::kSharedBytes
          ? DecodeLayout<Decode>::kSharedBytes
          : PrefillLayout<Prefill>::kSharedBytes;
  static_assert(Decode::kThreads == Prefill::kThreads);
};

template <class Decode, class Prefill>
__global__ void __launch_bounds__(Prefill::kThreads, 1)
    mixed_kernel(const __grid_constant__ DecodeArgs decode, const __grid_constant__ PrefillArgs prefill,
                 int decode_blocks) {
  extern __shared__ unsigned char shared[];
  const int block = static_cast<int>(blockIdx.x);
  if (block < decode_blocks)
    decode_block<Decode>(decode, shared, block, decode_blocks);
  else
    prefill_block<Prefill>(prefill, shared,
                           {block - decode_blocks, static_cast<int>(gridDim.x) - decode_blocks});
}

}  // namespace asynct::cuda
