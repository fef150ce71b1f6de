#include "asynct/python/attention_step.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/mixed.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/prefill.h"
#include "asynct/ops/cuda/error.h"
#include "asynct/python/device_guard.h"

namespace asynct::python {
namespace {

constexpr std::int64_t kMostUnits = std::int64_t{1} << 26;

std::int32_t multiprocessors(int device) {
  int count = 0;
  cuda::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
              "cudaDeviceGetAttribute");
  return count;
}

cuda::KvView view_of(const TensorRef& tensor) {
  return {.data = tensor.data,
          .block_stride = tensor.stride[0],
          .head_stride = tensor.stride[2],
          .token_stride = tensor.stride[1]};
}

/// A unit of prefill that writes no row, for launches with room to spare; decode's is all zeros.
constexpr cuda::PrefillUnit kEmptyPrefillUnit = {.last_key = 1};

static_assert(sizeof(cuda::DecodeUnit) == 32 && sizeof(cuda::PrefillUnit) == 32);
static_assert(sizeof(cuda::HeadFactors) == 16);

}  // namespace

AttentionStep::AttentionStep(const AttentionShape& shape, AttentionKernels kernels, bool skip_values)
    : shape_(shape), kernels_(kernels), skip_values_(skip_values) {
  if (shape.kv_heads < 1 || shape.heads < 1 || shape.heads % shape.kv_heads != 0)
    fail("attention: ", shape.heads, " query heads and ", shape.kv_heads,
         " KV heads, expected a multiple of them");
  if (shape.head_dim != 64 && shape.head_dim != 128)
    fail("attention: head_dim ", shape.head_dim, ", expected 64 or 128");
  const std::int32_t least = kernels == AttentionKernels::prefill ? 16 : 8;  // decode's is the lesser
  if (shape.block_size < least || !std::has_single_bit(static_cast<std::uint32_t>(shape.block_size)))
    fail("attention: pages of ", shape.block_size, " tokens, expected a power of two from ", least);
  group_ = shape.heads / shape.kv_heads;
  if (group_ > cuda::kDecodeRows)
    fail("attention: ", group_, " query heads a KV head, expected at most ", cuda::kDecodeRows);
  limits_.sequence_tokens = cuda::kDecodeRows / group_;
}

void AttentionStep::fix(const StepLimits& limits) {
  if (limits.sequences < 1 || limits.tokens < limits.sequences || limits.context < 1)
    fail("limits of a captured step: ", limits.sequences, " sequences, ", limits.tokens, " query rows, ",
         limits.context, " tokens of context; expected one or more, no fewer rows than sequences");
  constexpr std::int32_t kMostContext = std::numeric_limits<std::int32_t>::max() - cuda::kChunkKeys;
  if (limits.context > kMostContext)
    fail("limits of a captured step: ", limits.context, " tokens of context, expected at most ",
         kMostContext);
  if (limits.sequence_tokens < 1 || limits.sequence_tokens > cuda::kDecodeRows / group_)
    fail("limits of a captured step: ", limits.sequence_tokens,
         " rows of a decoding sequence, expected 1 to ", cuda::kDecodeRows / group_);
  const std::int64_t slots =
      std::int64_t{limits.sequences} * shape_.kv_heads * cuda::chunks_of(limits.context);
  const std::int64_t decode_room = kernels_ == AttentionKernels::prefill ? 0 : slots;
  const std::int32_t unit_tokens = cuda::kPrefillRows / group_;
  const std::int64_t prefill_room =
      kernels_ == AttentionKernels::decode
          ? 0
          : std::int64_t{shape_.kv_heads} * (std::int64_t{limits.tokens / unit_tokens} + limits.sequences);
  if (decode_room + prefill_room > kMostUnits)
    fail("limits of a captured step: ", decode_room + prefill_room, " pieces of work, expected at most ",
         kMostUnits);
  limits_ = limits;
  fixed_ = true;
  decode_room_ = slots_ = static_cast<std::int32_t>(decode_room);
  prefill_room_ = static_cast<std::int32_t>(prefill_room);
  most_tokens_ = limits.sequence_tokens;
}

void AttentionStep::check_lengths(const StepLengths& lengths) {
  const auto& [query_start, context_length, table_width, block_table] = lengths;
  if (query_start.size() != context_length.size() + 1)
    fail("query_start: ", query_start.size(), " entries for ", context_length.size(),
         " sequences, expected one more");
  if (query_start[0] != 0) fail("query_start: begins with ", query_start[0], ", expected 0");
  if (!block_table.empty() &&
      block_table.size() != context_length.size() * static_cast<std::size_t>(table_width))
    fail("block_table: ", block_table.size(), " entries, expected ", context_length.size(), " rows of ",
         table_width);
  std::int64_t chunks = 0;
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t rows = query_start[i + 1] - query_start[i];
    const std::int64_t most = std::int64_t{table_width} * shape_.block_size;
    if (rows < 0) fail("query_start: falls from ", query_start[i], " to ", query_start[i + 1]);
    if (rows == 0) continue;  // padding
    if (context_length[i] < rows || context_length[i] > most)
      fail("context_length: ", context_length[i], " of sequence ", i, ", expected ", rows,
           ", its query rows, to ", most, ", what its row of the block table holds");
    if (kernels_ == AttentionKernels::decode && rows > limits_.sequence_tokens)
      fail("decode: ", rows, " query rows of sequence ", i, ", expected at most ", limits_.sequence_tokens,
           " with ", group_, " query heads a KV head");
    if (fixed_ && context_length[i] > limits_.context)
      fail("context_length: ", context_length[i], " of sequence ", i, ", expected at most ", limits_.context,
           ", the most that was captured");
    chunks += cuda::chunks_of(context_length[i]);
  }
  if (chunks * shape_.kv_heads > kMostUnits)
    fail("attention: ", chunks * shape_.kv_heads, " pieces of work, expected at most ", kMostUnits);
  if (!fixed_) return;
  if (context_length.size() > static_cast<std::size_t>(limits_.sequences))
    fail("query_start: ", context_length.size(), " sequences, expected at most ", limits_.sequences,
         ", the most that were captured");
  if (query_start.back() > limits_.tokens)
    fail("query_start: ", query_start.back(), " query rows, expected at most ", limits_.tokens,
         ", the most that were captured");
}

std::size_t AttentionStep::decoding(const StepLengths& lengths) const {
  const std::size_t sequences = lengths.context_length.size();
  if (kernels_ == AttentionKernels::decode) return sequences;
  if (kernels_ == AttentionKernels::prefill) return 0;
  std::size_t count = 0;
  while (count < sequences &&
         lengths.query_start[count + 1] - lengths.query_start[count] <= limits_.sequence_tokens)
    ++count;
  return count;
}

void AttentionStep::build(const StepLengths& lengths) {
  check_lengths(lengths);
  const auto& [query_start, context_length, table_width, block_table] = lengths;
  std::int32_t last_block = -1;
  std::int32_t longest = 0;
  std::int32_t most_tokens = 1;
  const std::size_t decoded = decoding(lengths);
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t rows = query_start[i + 1] - query_start[i];
    if (rows == 0) continue;
    longest = std::max(longest, context_length[i]);
    if (i < decoded) most_tokens = std::max(most_tokens, rows);
    if (block_table.empty()) continue;
    const std::int32_t* const row = block_table.data() + i * static_cast<std::size_t>(table_width);
    for (std::int32_t j = 0; j < cuda::divide_up(context_length[i], shape_.block_size); ++j) {
      if (row[j] < 0) fail("block_table: ", row[j], " at [", i, ", ", j, "], expected a block");
      last_block = std::max(last_block, row[j]);
    }
  }
  last_block_ = last_block;
  longest_ = longest;
  sequences_ = static_cast<std::int32_t>(context_length.size());
  tokens_ = query_start.back();
  decode_.build(query_start.first(decoded + 1), context_length.first(decoded), shape_.kv_heads);
  prefill_.build(query_start.subspan(decoded), context_length.subspan(decoded), shape_.kv_heads, group_);
  for (cuda::PrefillUnit& unit : prefill_.units) unit.sequence += static_cast<std::int32_t>(decoded);
  if (fixed_) return;
  decode_room_ = decode_units();
  prefill_room_ = prefill_units();
  slots_ = decode_.slots;
  most_tokens_ = most_tokens;
}

std::int64_t AttentionStep::unit_rows() const { return std::int64_t{decode_room_} + prefill_room_; }

void AttentionStep::write_units(std::span<std::int32_t> to) const {
  assert(static_cast<std::int64_t>(to.size()) == 8 * unit_rows());
  const auto room = static_cast<std::size_t>(decode_room_);
  if (to.empty()) return;
  std::memset(to.data(), 0, 32 * room);
  std::memcpy(to.data(), decode_.units.data(), 32 * decode_.units.size());
  std::int32_t* at = to.data() + 8 * room;
  std::memcpy(at, prefill_.units.data(), 32 * prefill_.units.size());
  for (at += 8 * prefill_.units.size(); at != to.data() + to.size(); at += 8)
    std::memcpy(at, &kEmptyPrefillUnit, 32);
}

std::int64_t AttentionStep::partial_floats() const {
  return std::int64_t{slots_} * cuda::kDecodeRows * shape_.head_dim;
}

std::int64_t AttentionStep::arrived_words() const {
  return 2 * std::int64_t{slots_} + (prefill_room_ > 0 ? 2 : 0);  // what units are taken by follows decode's
}

std::int64_t AttentionStep::span_sum_floats(std::int32_t multiprocessors) const {
  const std::int32_t context = fixed_ ? limits_.context : longest_;
  if (prefill_room_ == 0 || cuda::spans_of(context) < 2) return 0;
  return std::int64_t{multiprocessors} * cuda::kPrefillRows * shape_.head_dim;
}

void AttentionStep::check_memory(const StepMemory& memory, int device) const {
  const auto check = [&](std::string_view name, const TensorRef& tensor, DType dtype, std::int64_t elements) {
    if (elements == 0) return;
    expect_dtype(name, tensor, {dtype});
    expect_device(name, tensor, device);
    expect_room(name, tensor, elements);
  };
  check("units", memory.units, DType::i32, 8 * unit_rows());
  check("partial sums", memory.partial, DType::f32, partial_floats());
  check("arrival counters", memory.arrived, DType::i32, arrived_words());
  check("span sums", memory.span_sums, DType::f32, span_sum_floats(multiprocessors(device)));
  const TensorRef& table = memory.block_table;
  expect_dtype("block_table", table, {DType::i32});
  expect_device("block_table", table, device);
  expect_shape("block_table", table, {-1, -1});
  const std::int32_t sequences = fixed_ ? limits_.sequences : sequences_;
  if (table.shape[0] < sequences)
    fail("block_table: ", table.shape[0], " rows, expected at least ", sequences, ", one a sequence");
  const std::int64_t context = fixed_ ? limits_.context : longest_;
  if (sequences > 0 && table.shape[1] * shape_.block_size < context)
    fail("block_table: ", table.shape[1], " blocks a row, expected enough for ", context, " tokens");
  if (table.shape[1] > 1 && table.stride[1] != 1)
    fail("block_table: blocks of a row are ", table.stride[1], " apart, expected contiguous rows");
}

void AttentionStep::check_layer(LayerTensors& layer) const {
  TensorRef& query = layer.query;
  TensorRef& key = layer.key;
  TensorRef& value = layer.value;
  TensorRef& out = layer.out;
  const TensorRef& factors = layer.factors;
  expect_dtype("query", query, {DType::bf16, DType::f16});
  if (!query.on_cuda) fail("query: on the CPU, expected on a CUDA device");
  const auto check = [&](std::string_view name, TensorRef& tensor,
                         std::initializer_list<std::int64_t> shape) {
    expect_dtype(name, tensor, {*query.dtype});
    expect_device(name, tensor, query.device);
    expect_shape(name, tensor, shape);
    expect_rows(name, tensor);
  };
  check("query", query, {-1, shape_.heads, shape_.head_dim});
  check("key cache", key, {-1, shape_.block_size, shape_.kv_heads, shape_.head_dim});
  check("value cache", value, {key.shape[0], shape_.block_size, shape_.kv_heads, shape_.head_dim});
  check("out", out, {query.shape[0], shape_.heads, shape_.head_dim});
  for (const auto* rows : {&query, &out})
    if (rows->stride[1] != shape_.head_dim)
      fail(rows == &out ? "out" : "query", ": heads of a row are ", rows->stride[1], " apart, expected ",
           shape_.head_dim);
  if (out.shape[0] > 1 && out.stride[0] < std::int64_t{shape_.heads} * shape_.head_dim)
    fail("out: rows are ", out.stride[0], " apart, expected at least ", shape_.heads * shape_.head_dim,
         ": they would overlap");
  const std::int32_t tokens = fixed_ ? limits_.tokens : tokens_;
  if (query.shape[0] < tokens)
    fail("query: ", query.shape[0], " rows, expected at least ", tokens,
         fixed_ ? ", the most that a captured step may have" : ", those of the plan");
  if (last_block_ >= key.shape[0])
    fail("block_table: block ", last_block_, ", expected less than the ", key.shape[0], " of the cache");
  expect_dtype("factors", factors, {DType::f32});
  expect_device("factors", factors, query.device);
  expect_shape("factors", factors, {shape_.heads, 4});
  expect_room("factors", factors, 4 * std::int64_t{shape_.heads});
}

cuda::DecodeArgs AttentionStep::decode_args(const StepMemory& memory, const LayerTensors& layer) const {
  cuda::DecodeArgs args = {.query = layer.query.data,
                           .out = layer.out.data,
                           .query_stride = layer.query.stride[0],
                           .out_stride = layer.out.stride[0],
                           .block_table = static_cast<const std::int32_t*>(memory.block_table.data),
                           .factors = static_cast<const cuda::HeadFactors*>(layer.factors.data),
                           .units = static_cast<const cuda::DecodeUnit*>(memory.units.data),
                           .partial = static_cast<float*>(memory.partial.data),
                           .arrived = static_cast<std::uint32_t*>(memory.arrived.data),
                           .slots = slots_,
                           .unit_count = decode_room_,
                           .max_blocks = static_cast<std::int32_t>(memory.block_table.stride[0]),
                           .block_shift = std::countr_zero(static_cast<std::uint32_t>(shape_.block_size)),
                           .group = group_,
                           .most_rows = group_ * most_tokens_,
                           .form = layer.form,
                           .skip_values = skip_values_};
  cuda::set_cache(args, view_of(layer.key), view_of(layer.value), *layer.query.dtype,
                  static_cast<std::int32_t>(layer.key.shape[0]), shape_.block_size, shape_.kv_heads,
                  shape_.head_dim);
  return args;
}

cuda::PrefillArgs AttentionStep::prefill_args(const StepMemory& memory, const LayerTensors& layer) const {
  cuda::PrefillArgs args = {.out = layer.out.data,
                            .out_stride = layer.out.stride[0],
                            .block_table = static_cast<const std::int32_t*>(memory.block_table.data),
                            .factors = static_cast<const cuda::HeadFactors*>(layer.factors.data),
                            .units = static_cast<const cuda::PrefillUnit*>(memory.units.data) + decode_room_,
                            .taken = static_cast<std::uint32_t*>(memory.arrived.data) + 2 * slots_,
                            .span_sums = static_cast<float*>(memory.span_sums.data),
                            .unit_count = prefill_room_,
                            .max_blocks = static_cast<std::int32_t>(memory.block_table.stride[0]),
                            .block_shift = std::countr_zero(static_cast<std::uint32_t>(shape_.block_size)),
                            .form = layer.form};
  cuda::set_tensors(args,
                    {.dtype = *layer.query.dtype,
                     .query = layer.query.data,
                     .query_stride = layer.query.stride[0],
                     .rows = static_cast<std::int32_t>(layer.query.shape[0]),
                     .heads = shape_.heads,
                     .kv_heads = shape_.kv_heads,
                     .head_dim = shape_.head_dim,
                     .blocks = static_cast<std::int32_t>(layer.key.shape[0]),
                     .block_size = shape_.block_size},
                    view_of(layer.key), view_of(layer.value));
  return args;
}

void AttentionStep::run(const StepMemory& memory, const LayerTensors& given, bool together,
                        cudaStream_t stream) const {
  LayerTensors layer = given;
  check_layer(layer);
  if (unit_rows() == 0) return;
  const DeviceGuard guard(layer.query.device);
  check_memory(memory, layer.query.device);
  const DType dtype = *layer.query.dtype;
  cuda::DecodeArgs decode;
  cuda::PrefillArgs prefill;
  if (decode_room_ > 0) decode = decode_args(memory, layer);
  if (prefill_room_ > 0) prefill = prefill_args(memory, layer);
  if (together && decode_units() > 0 && prefill_units() > 0 && cuda::mixed_takes(decode, prefill, dtype)) {
    const std::int32_t blocks =
        cuda::mixed_decode_blocks(decode_, prefill_, shape_.head_dim, multiprocessors(layer.query.device));
    return cuda::run_mixed(decode, prefill, blocks, dtype, shape_.head_dim, layer.pool_size, stream);
  }
  // Prefill takes less than decode and comes first: what it refuses is refused before anything is launched.
  if (prefill_room_ > 0) cuda::run_prefill(prefill, dtype, shape_.head_dim, layer.pool_size, stream);
  if (decode_room_ > 0) cuda::run_decode(decode, dtype, shape_.head_dim, layer.pool_size, stream);
}

}  // namespace asynct::python
