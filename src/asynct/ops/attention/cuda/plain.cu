#include "asynct/ops/attention/cuda/plain.h"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/plain_check.h"
#include "asynct/ops/attention/cuda/plain_few.cuh"
#include "asynct/ops/attention/cuda/plain_many.cuh"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"

// AsyncI for GPUs from sm_80 on and for what the kernels for sm_90a do not take: any group up to 16, blocks
// of any size or none, heads of 256. Products of a warp and cp.async, nothing newer.
//
// Floor: few rows, decode: 4 D bytes a key and KV head over the read rate; many rows, prefill: 4 D flops a
// visible (row, key) pair at the rate of a warp's products.
//
// A block owns 16 or 64 query rows of one KV head (heads of the group times tokens) and goes through keys in
// stages of 64, two of them in shared memory: while one is used the next one comes. Both kinds of blocks put
// the same keys, weights and values at the same places of the same matrix instructions and add in the order
// of policy.h, so their rows have equal bits on any GPU; on Hopper they also are the bits of its own kernels
// (plain_gpu_test.cc).
namespace asynct::cuda {
namespace {

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, plain_few_blocks(Traits::kDim))
    plain_few_kernel(const __grid_constant__ PlainArgs args, const int pool_size) {
  extern __shared__ __align__(128) unsigned char shared[];
  PlainFew<Traits>(args, shared_address(shared), args.few[blockIdx.x]).run(pool_size);
}

template <class Traits>
__global__ void __launch_bounds__(Traits::kThreads, plain_many_blocks(Traits::kDim))
    plain_many_kernel(const __grid_constant__ PlainArgs args, const int pool_size) {
  extern __shared__ __align__(128) unsigned char shared[];
  PlainMany<Traits> many(args, shared_address(shared));
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  // Forth and back, so that no block gets the longest of each round.
  for (int round = 0;; ++round) {
    const int unit = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (unit >= args.many_count) break;
    many.run(pool_size, args.many[unit]);
  }
}

template <class Traits>
void launch(const PlainArgs& args, std::int32_t pool_size, cudaStream_t stream) {
  if (args.few_count > 0) {
    constexpr int kSharedBytes = PlainFew<Traits>::kSharedBytes;
    prepare<plain_few_kernel<Traits>>(kSharedBytes);
    plain_few_kernel<Traits><<<args.few_count, Traits::kThreads, kSharedBytes, stream>>>(args, pool_size);
    check_launch("plain attention, few rows");
  }
  if (args.many_count > 0) {
    constexpr int kSharedBytes = PlainMany<Traits>::kSharedBytes;
    const int blocks = prepare<plain_many_kernel<Traits>>(kSharedBytes) * plain_many_blocks(Traits::kDim);
    plain_many_kernel<Traits>
        <<<std::min(args.many_count, blocks), Traits::kThreads, kSharedBytes, stream>>>(args, pool_size);
    check_launch("plain attention, many rows");
  }
}

template <class Element>
void launch_element(const PlainArgs& args, std::int32_t head_dim, std::int32_t pool_size,
                    cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch<PlainTraits<Element, 64>>(args, pool_size, stream);
    case 128:
      return launch<PlainTraits<Element, 128>>(args, pool_size, stream);
    case 256:
      return launch<PlainTraits<Element, 256>>(args, pool_size, stream);
    default:
      fail("plain attention: head_dim ", head_dim, ", expected 64, 128 or 256");
  }
}

}  // namespace

std::int32_t plain_blocks(std::int32_t head_dim) {
  return multiprocessor_count() * plain_many_blocks(head_dim);
}

void run_plain(const PlainArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
               cudaStream_t stream) {
  if (args.few_count == 0 && args.many_count == 0) return;
  expect_plain(args);
  if (pool_size != 1 && pool_size != 2 && pool_size != 3 && pool_size != 5)
    fail("plain attention: pool_size ", pool_size, ", expected 1, 2, 3 or 5");
  switch (dtype) {
    case DType::bf16:
      return launch_element<__nv_bfloat16>(args, head_dim, pool_size, stream);
    case DType::f16:
      return launch_element<__half>(args, head_dim, pool_size, stream);
    default:
      fail("plain attention: dtype ", name(dtype), ", expected bf16 or f16");
  }
}

}  // namespace asynct::cuda
