#include "cuda_core_decode.h"

#include <cuda_bf16.h>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/error.h"

// The layout that decode kernels had before matrix instructions: a block of 128 threads for a query head, a
// sequence and 512 keys. Four threads share a key's vector; weights meet in shared memory; then a warp's
// halves take a value row each. Partial sums are added by a second kernel. Every query head reads its KV
// head's keys and values again, from the L2 where they still lie there.
namespace asynct::kernel_bench {
namespace {

constexpr int kThreads = 128;
constexpr int kKeyThreads = 4;  // of a key
constexpr int kMostHalo = 4;    // keys before the partition, for pooling
constexpr int kPiece = 8;       // elements of 16 bytes

__device__ inline void widen(const uint4& packed, float (&wide)[kPiece]) {
  const std::uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wide[2 * i] = __uint_as_float(words[i] << 16);
    wide[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}

/// Row of `key` in keys or values, in elements.
template <int kDim>
__device__ inline std::int64_t row_of(const CudaCoreDecodeArgs& args, const std::int32_t* table, int key,
                                      int kv_head) {
  const int block = table[key >> args.block_shift];
  const std::int64_t slot =
      (static_cast<std::int64_t>(block) << args.block_shift) + (key & ((1 << args.block_shift) - 1));
  return (slot * args.kv_heads + kv_head) * kDim;
}

/// Raw products of the query with `keys` keys from `first` on, by groups of threads.
template <int kDim>
__device__ void compute_scores(const CudaCoreDecodeArgs& args, const std::int32_t* table, int head,
                               int kv_head, int first, int keys, float* scores) {
  constexpr int kPieces = kDim / kPiece / kKeyThreads;
  const int part = threadIdx.x % kKeyThreads;
  const auto* const query = static_cast<const uint4*>(args.query) +
                            (static_cast<std::int64_t>(blockIdx.y) * args.heads + head) * (kDim / kPiece);
  float q[kPieces][kPiece];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) widen(query[part + i * kKeyThreads], q[i]);
  for (int at = threadIdx.x / kKeyThreads; at - threadIdx.x / kKeyThreads < keys;
       at += kThreads / kKeyThreads) {
    float sum = 0;
    if (at < keys) {
      const auto* const row = reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(args.key) +
                                                             row_of<kDim>(args, table, first + at, kv_head));
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        float k[kPiece];
        widen(row[part + i * kKeyThreads], k);
#pragma unroll
        for (int e = 0; e < kPiece; ++e) sum = fmaf(q[i][e], k[e], sum);
      }
    }
#pragma unroll
    for (int step = kKeyThreads / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    if (part == 0 && at < keys) scores[at] = sum;
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) partition_kernel(const CudaCoreDecodeArgs args) {
  constexpr int kRowThreads = kDim / kPiece;     // of a value row
  constexpr int kRows = kThreads / kRowThreads;  // value rows at once
  __shared__ float scores[kCudaCorePartition + kMostHalo];
  __shared__ float weights[kCudaCorePartition];
  __shared__ float sums[kRows][kDim];
  const int partition = blockIdx.x;
  const int sequence = blockIdx.y;
  const int head = blockIdx.z;
  const int kv_head = head / (args.heads / args.kv_heads);
  const int context = args.context_length[sequence];
  const int first = partition * kCudaCorePartition;
  if (first >= context) return;
  const int keys = min(kCudaCorePartition, context - first);
  const int halo = min(first, args.pool_size - 1);
  const std::int32_t* const table = args.block_table + static_cast<std::int64_t>(sequence) * args.max_blocks;
  compute_scores<kDim>(args, table, head, kv_head, first - halo, keys + halo, scores);
  __syncthreads();

  const float slope = args.slope[head];
  const float bias = args.bias[head];
  const float sigma = args.sigma[head];
  for (int i = threadIdx.x; i < keys; i += kThreads) {
    float pool = 0;
    for (int back = 0; back < args.pool_size; ++back) {
      const int at = i + halo - back;
      if (at >= 0) pool += scores[at] <= 0 ? 0.F : scores[at];  // NaN stays
    }
    const float weight = slope * scores[i + halo] + bias - sigma * pool;
    weights[i] = weight <= 0 ? 0.F : weight >= 1 ? 1.F : weight;
  }
  __syncthreads();

  const int piece = threadIdx.x % kRowThreads;
  const int row = threadIdx.x / kRowThreads;
  float sum[kPiece] = {};
#pragma unroll 4
  for (int i = row; i < keys; i += kRows) {
    float v[kPiece];
    widen(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(args.value) +
                                         row_of<kDim>(args, table, first + i, kv_head))[piece],
          v);
#pragma unroll
    for (int e = 0; e < kPiece; ++e) sum[e] = fmaf(weights[i], v[e], sum[e]);
  }
#pragma unroll
  for (int e = 0; e < kPiece; ++e) sums[row][piece * kPiece + e] = sum[e];
  __syncthreads();
  for (int d = threadIdx.x; d < kDim; d += kThreads) {
    float total = 0;
    for (int r = 0; r < kRows; ++r) total += sums[r][d];
    args.partial[((static_cast<std::int64_t>(sequence) * args.heads + head) * args.partitions + partition) *
                     kDim +
                 d] = total;
  }
}

template <int kDim>
__global__ void __launch_bounds__(kDim) sum_kernel(const CudaCoreDecodeArgs args) {
  const int head = blockIdx.x;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * args.heads + head;
  const int partitions = (args.context_length[blockIdx.y] + kCudaCorePartition - 1) / kCudaCorePartition;
  float total = 0;
  for (int p = 0; p < partitions; ++p)
    total += args.partial[(row * args.partitions + p) * kDim + threadIdx.x];
  static_cast<__nv_bfloat16*>(args.out)[row * kDim + threadIdx.x] = __float2bfloat16(args.gain[head] * total);
}

template <int kDim>
void launch(const CudaCoreDecodeArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.partitions), static_cast<unsigned>(args.sequences),
                  static_cast<unsigned>(args.heads));
  partition_kernel<kDim><<<grid, kThreads, 0, stream>>>(args);
  cuda::check_launch("CUDA-core decode");
  sum_kernel<kDim><<<dim3(grid.z, grid.y), kDim, 0, stream>>>(args);
  cuda::check_launch("CUDA-core decode, sums");
}

}  // namespace

void run_cuda_core_decode(const CudaCoreDecodeArgs& args, std::int32_t head_dim, cudaStream_t stream) {
  if (args.pool_size < 1 || args.pool_size > kMostHalo + 1)
    fail("CUDA-core decode: pool_size ", args.pool_size, ", expected 1 to ", kMostHalo + 1);
  if (args.sequences == 0) return;
  switch (head_dim) {
    case 64:
      return launch<64>(args, stream);
    case 128:
      return launch<128>(args, stream);
    default:
      fail("CUDA-core decode: head_dim ", head_dim, ", expected 64 or 128");
  }
}

}  // namespace asynct::kernel_bench
