#include "asynct/ops/attention/cuda/decode.h"

#include <algorithm>
#include <bit>

#include "asynct/ops/attention/cuda/decode.cuh"
#include "asynct/ops/attention/cuda/dispatch.h"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/tensor_map.h"

namespace asynct::cuda {
namespace {

template <class Traits>
void launch(const DecodeArgs& args, cudaStream_t stream) {
  constexpr int kSharedBytes = DecodeLayout<Traits>::kSharedBytes;
  const int blocks = std::min(args.unit_count, prepare<decode_kernel<Traits>>(kSharedBytes));
  launch_overlapped(decode_kernel<Traits>, "decode", dim3(static_cast<unsigned>(blocks)),
                    dim3(Traits::kThreads), args, stream, kSharedBytes);
}

/// Rows of 8 are the rule: a KV head's queries of one token.
template <class Element, int kDim, int kPool>
void launch_rows(const DecodeArgs& args, cudaStream_t stream) {
  if (args.most_rows <= 8) return launch<DecodeTraits<Element, kDim, kPool, 1>>(args, stream);
  launch<DecodeTraits<Element, kDim, kPool, 2>>(args, stream);
}

template <class Element>
void launch_element(const DecodeArgs& args, std::int32_t head_dim, std::int32_t pool_size,
                    cudaStream_t stream) {
  by_head_dim("decode", head_dim, [&]<int kDim>() {
    by_pool_size("decode", pool_size, [&]<int kPool>() { launch_rows<Element, kDim, kPool>(args, stream); });
  });
}

}  // namespace

void set_cache(DecodeArgs& args, const KvView& key, const KvView& value, DType dtype, std::int32_t blocks,
               std::int32_t block_size, std::int32_t kv_heads, std::int32_t head_dim) {
  if (block_size < 8 || !std::has_single_bit(static_cast<std::uint32_t>(block_size)))
    fail("decode: blocks of ", block_size, " tokens, expected a power of two from 8");
  const auto halves = static_cast<std::uint32_t>(head_dim / 64);
  const auto shape_of = [&](std::uint32_t rows, std::uint32_t box_halves) {
    TensorMapShape shape = {.dtype = dtype};
    shape.size = {64, static_cast<std::uint64_t>(block_size), halves, static_cast<std::uint64_t>(kv_heads),
                  static_cast<std::uint64_t>(blocks)};
    shape.stride = {bytes_of_16_bit(key.token_stride), 128, bytes_of_16_bit(key.head_stride),
                    bytes_of_16_bit(key.block_stride)};
    shape.box = {64, rows, box_halves, 1, 1};
    return shape;
  };
  const bool whole = block_size >= kTileKeys;
  const auto rows = static_cast<std::uint32_t>(whole ? kTileKeys : block_size);
  args.value = value;
  args.key_map = make_tensor_map(key.data, shape_of(rows, whole ? halves : 1));
  args.halo_map = make_tensor_map(key.data, shape_of(kHaloKeys, 1));
}

void run_decode(const DecodeArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
                cudaStream_t stream) {
  if (args.unit_count == 0) return;
  if (args.most_rows > kDecodeRows)
    fail("decode: ", args.most_rows, " query rows a KV head, expected at most ", kDecodeRows);
  switch (dtype) {
    case DType::bf16:
      return launch_element<__nv_bfloat16>(args, head_dim, pool_size, stream);
    case DType::f16:
      return launch_element<__half>(args, head_dim, pool_size, stream);
    default:
      fail("decode: dtype ", name(dtype), ", expected bf16 or f16");
  }
}

}  // namespace asynct::cuda
