#include "asynct/ops/attention/cuda/prefill.h"

#include <bit>
#include <limits>

#include "asynct/ops/attention/cuda/dispatch.h"
#include "asynct/ops/attention/cuda/prefill_launch.cuh"
#include "asynct/ops/cuda/tensor_map.h"

namespace asynct::cuda {
namespace {

/// Keys of 16 go where tile_row_of() says: a box's dimensions are e, t and j. Where a head's and a part's 16
/// keys begin is added to the column.
CUtensorMap permuted_map(const KvView& view, const PrefillTensors& tensors) {
  TensorMapShape shape = {.dtype = tensors.dtype};
  const std::int64_t span = (tensors.kv_heads - 1) * view.head_stride +
                            (tensors.block_size - 16) * view.token_stride + tensors.head_dim;
  // A column is where a head and a token of a block begin, as the copy engine counts: in 32 bits.
  if (span < 1 || span > std::numeric_limits<std::int32_t>::max())
    fail("prefill: heads and tokens of a block of keys or values lie ", span,
         " elements apart, expected at most ", std::numeric_limits<std::int32_t>::max());
  shape.size = {static_cast<std::uint64_t>(span), 2, 4, 2, static_cast<std::uint64_t>(tensors.blocks)};
  shape.stride = {bytes_of_16_bit(view.token_stride), bytes_of_16_bit(4 * view.token_stride),
                  bytes_of_16_bit(2 * view.token_stride), bytes_of_16_bit(view.block_stride)};
  shape.box = {64, 2, 4, 2, 1};
  return make_tensor_map(view.data, shape);
}

}  // namespace

void set_tensors(PrefillArgs& args, const PrefillTensors& tensors, const KvView& key, const KvView& value) {
  if (tensors.block_size < 16 || !std::has_single_bit(static_cast<std::uint32_t>(tensors.block_size)))
    fail("prefill: blocks of ", tensors.block_size, " tokens, expected a power of two from 16");
  if (tensors.kv_heads < 1 || tensors.heads % tensors.kv_heads != 0)
    fail("prefill: ", tensors.heads, " query heads, expected a multiple of the ", tensors.kv_heads,
         " KV heads");
  const std::int32_t group = tensors.heads / tensors.kv_heads;
  if (group > 16 || !std::has_single_bit(static_cast<std::uint32_t>(group)))
    fail("prefill: ", group, " query heads a KV head, expected 1, 2, 4, 8 or 16");
  args.group_shift = std::countr_zero(static_cast<std::uint32_t>(group));
  args.key = key;
  args.value = value;
  args.key_map = permuted_map(key, tensors);
  args.value_map = permuted_map(value, tensors);
  TensorMapShape shape = {.dtype = tensors.dtype};
  const auto count = [](std::int32_t n) { return static_cast<std::uint64_t>(n); };
  shape.size = {64, count(group), count(tensors.rows), count(tensors.head_dim / 64), count(tensors.kv_heads)};
  shape.stride = {bytes_of_16_bit(tensors.head_dim), bytes_of_16_bit(tensors.query_stride), 128,
                  bytes_of_16_bit(std::int64_t{group} * tensors.head_dim)};
  shape.box = {64, static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(kPrefillRows / group), 1, 1};
  args.query_map = make_tensor_map(tensors.query, shape);
}

void run_prefill(const PrefillArgs& args, DType dtype, std::int32_t head_dim, std::int32_t pool_size,
                 cudaStream_t stream) {
  if (dtype != DType::bf16 && dtype != DType::f16)
    fail("prefill: dtype ", name(dtype), ", expected bf16 or f16");
  by_head_dim("prefill", head_dim, [&]<int kDim>() {
    by_pool_size("prefill", pool_size, [&]<int kPool>() {
      if (dtype == DType::f16) return launch_prefill<PrefillTraits<__half, kDim, kPool, false>>(args, stream);
      if (args.form.plain)
        return launch_prefill<PrefillTraits<__nv_bfloat16, kDim, kPool, true>>(args, stream);
      launch_prefill<PrefillTraits<__nv_bfloat16, kDim, kPool, false>>(args, stream);
    });
  });
}

}  // namespace asynct::cuda
