#include "asynct/python/attention_args.h"

#include <bit>

#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/prefill.h"

namespace asynct::extension {
namespace {

static_assert(sizeof(cuda::DecodeUnit) == 32 && sizeof(cuda::PrefillUnit) == 32);
static_assert(sizeof(cuda::HeadFactors) == 16);

cuda::KvView view_of(const TensorRef& tensor) {
  const std::vector<std::int64_t>& stride = tensor.stride;
  if (stride.size() == 3)
    return {.data = tensor.data, .block_stride = 0, .head_stride = stride[1], .token_stride = stride[0]};
  return {
      .data = tensor.data, .block_stride = stride[0], .head_stride = stride[2], .token_stride = stride[1]};
}

std::int32_t block_shift(const StepRoom& room) {
  return std::countr_zero(static_cast<std::uint32_t>(room.shape.block_size));
}

const auto* factors_of(const LayerTensors& layer) {
  return static_cast<const cuda::HeadFactors*>(layer.factors.data);
}

const auto* few_units(const StepMemory& memory) {
  return static_cast<const cuda::DecodeUnit*>(memory.units.data);
}

const auto* many_units(const StepRoom& room, const StepMemory& memory) {
  return static_cast<const cuda::PrefillUnit*>(memory.units.data) + room.few_units;
}

auto* counters(const StepMemory& memory) { return static_cast<std::uint32_t*>(memory.arrived.data); }

}  // namespace

cuda::DecodeArgs decode_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer,
                             bool skip_values) {
  const AttentionShape& shape = room.shape;
  cuda::DecodeArgs args = {.query = layer.query.data,
                           .out = layer.out.data,
                           .query_stride = layer.query.stride[0],
                           .out_stride = layer.out.stride[0],
                           .block_table = static_cast<const std::int32_t*>(memory.places.data),
                           .factors = factors_of(layer),
                           .units = few_units(memory),
                           .partial = static_cast<float*>(memory.partial.data),
                           .arrived = counters(memory),
                           .slots = room.slots,
                           .unit_count = room.few_units,
                           .max_blocks = static_cast<std::int32_t>(memory.places.stride[0]),
                           .block_shift = block_shift(room),
                           .group = shape.group(),
                           .most_rows = shape.group() * room.few_tokens,
                           .form = layer.form,
                           .skip_values = skip_values,
                           .value_count = static_cast<std::uint64_t*>(memory.value_count.data)};
  cuda::set_cache(args, view_of(layer.key), view_of(layer.value), *layer.query.dtype,
                  static_cast<std::int32_t>(layer.key.shape[0]), shape.block_size, shape.kv_heads,
                  shape.head_dim);
  return args;
}

cuda::PrefillArgs prefill_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer) {
  cuda::PrefillArgs args = {.out = layer.out.data,
                            .out_stride = layer.out.stride[0],
                            .block_table = static_cast<const std::int32_t*>(memory.places.data),
                            .factors = factors_of(layer),
                            .units = many_units(room, memory),
                            .taken = counters(memory) + 2 * std::int64_t{room.slots},
                            .span_sums = static_cast<float*>(memory.span_sums.data),
                            .unit_count = room.many_units,
                            .max_blocks = static_cast<std::int32_t>(memory.places.stride[0]),
                            .block_shift = block_shift(room),
                            .form = layer.form};
  cuda::set_tensors(args,
                    {.dtype = *layer.query.dtype,
                     .query = layer.query.data,
                     .query_stride = layer.query.stride[0],
                     .rows = static_cast<std::int32_t>(layer.query.shape[0]),
                     .heads = room.shape.heads,
                     .kv_heads = room.shape.kv_heads,
                     .head_dim = room.shape.head_dim,
                     .blocks = static_cast<std::int32_t>(layer.key.shape[0]),
                     .block_size = room.shape.block_size},
                    view_of(layer.key), view_of(layer.value));
  return args;
}

cuda::PlainArgs plain_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer) {
  cuda::PlainArgs args = {.query = layer.query.data,
                          .out = layer.out.data,
                          .query_stride = layer.query.stride[0],
                          .out_stride = layer.out.stride[0],
                          .key = view_of(layer.key),
                          .value = view_of(layer.value),
                          .factors = factors_of(layer),
                          .few = few_units(memory),
                          .many = many_units(room, memory),
                          .partial = static_cast<float*>(memory.partial.data),
                          .arrived = counters(memory),
                          .sums = static_cast<float*>(memory.span_sums.data),
                          .slots = room.slots,
                          .few_count = room.few_is_plain ? room.few_units : 0,
                          .many_count = room.many_is_plain ? room.many_units : 0,
                          .block_size = room.shape.block_size,
                          .group = room.shape.group(),
                          .form = layer.form};
  if (room.shape.block_size == 0) {
    args.first_key = static_cast<const std::int64_t*>(memory.places.data);
  } else {
    args.block_table = static_cast<const std::int32_t*>(memory.places.data);
    args.max_blocks = static_cast<std::int32_t>(memory.places.stride[0]);
  }
  return args;
}

cuda::DecodeUnit empty_few_unit(bool is_plain) {
  if (is_plain) return {.chunk = 1, .context = 1};
  return {};
}

cuda::PrefillUnit empty_many_unit(bool is_plain) {
  if (is_plain) return {};
  return {.last_key = 1};
}

}  // namespace asynct::extension
