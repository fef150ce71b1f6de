#include "asynct/python/attention_step.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/mixed.h"
#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/prefill.h"
#include "asynct/python/attention_args.h"
#include "asynct/python/device_guard.h"

namespace asynct::extension {
namespace {

constexpr std::int64_t kMostUnits = std::int64_t{1} << 26;
constexpr std::int32_t kMostContext = std::numeric_limits<std::int32_t>::max() - cuda::kChunkKeys;

/// dtype and pool belong to a layer; all kernels take the same ones.
cuda::AttentionChoice path_of(const AttentionShape& shape, const AttentionDevice& device,
                              std::int32_t tokens) {
  return cuda::choose_path({.head_dim = shape.head_dim,
                            .group = shape.group(),
                            .tokens = tokens,
                            .block_size = shape.block_size,
                            .compute_capability = device.compute_capability});
}

}  // namespace

AttentionStep::AttentionStep(const AttentionShape& shape, AttentionKernels kernels,
                             const AttentionDevice& device, SkipValues skip_values)
    : kernels_(kernels), skip_values_(skip_values) {
  if (shape.kv_heads < 1 || shape.heads < 1 || shape.heads % shape.kv_heads != 0)
    fail("attention: ", shape.heads, " query heads and ", shape.kv_heads,
         " KV heads, expected a multiple of them");
  few_path_ = path_of(shape, device, 1);
  const std::int32_t most_few = cuda::kDecodeRows / shape.group();
  many_path_ = path_of(shape, device, most_few + 1);
  room_ = {.shape = shape,
           .device = device,
           .few_is_plain = few_path_.path == cuda::AttentionPath::plain,
           .many_is_plain = many_path_.path == cuda::AttentionPath::plain};
  few_tokens_ = kernels == AttentionKernels::prefill && !room_.many_is_plain ? 0 : most_few;
}

std::int32_t AttentionStep::unit_tokens() const {
  return (room_.many_is_plain ? cuda::kPlainRows : cuda::kPrefillRows) / room_.shape.group();
}

void AttentionStep::fix(const StepLimits& limits) {
  if (skip_values_ == SkipValues::by_density)
    fail("skip_values: by density with captured launches, which stay as they are; expected yes or no");
  if (limits.sequences < 1 || limits.tokens < limits.sequences || limits.context < 1)
    fail("limits of a captured step: ", limits.sequences, " sequences, ", limits.tokens, " query rows, ",
         limits.context, " tokens of context; expected one or more, no fewer rows than sequences");
  if (limits.context > kMostContext)
    fail("limits of a captured step: ", limits.context, " tokens of context, expected at most ",
         kMostContext);
  const AttentionShape& shape = room_.shape;
  const std::int32_t most_few = cuda::kDecodeRows / shape.group();
  if (limits.sequence_tokens < 1 || limits.sequence_tokens > most_few)
    fail("limits of a captured step: ", limits.sequence_tokens,
         " rows of a decoding sequence, expected 1 to ", most_few);
  // Prefill would need room for all sequences twice to part few rows from many.
  const bool has_few = kernels_ != AttentionKernels::prefill;
  const bool has_many = kernels_ != AttentionKernels::decode;
  const std::int64_t few =
      has_few ? std::int64_t{limits.sequences} * shape.kv_heads * cuda::chunks_of(limits.context) : 0;
  const std::int64_t many = has_many ? std::int64_t{shape.kv_heads} *
                                           (std::int64_t{limits.tokens / unit_tokens()} + limits.sequences)
                                     : 0;
  if (few + many > kMostUnits)
    fail("limits of a captured step: ", few + many, " pieces of work, expected at most ", kMostUnits);
  few_tokens_ = has_few ? limits.sequence_tokens : 0;
  room_.captured = true;
  room_.few_units = room_.slots = static_cast<std::int32_t>(few);
  room_.many_units = static_cast<std::int32_t>(many);
  room_.sequences = limits.sequences;
  room_.tokens = limits.tokens;
  room_.few_tokens = limits.sequence_tokens;
  room_.context = limits.context;
}

void AttentionStep::check_lengths(const StepLengths& lengths) const {
  const auto& [query_start, context_length, table_width, block_table, first_key] = lengths;
  const bool has_table = room_.shape.block_size > 0;
  if (query_start.size() != context_length.size() + 1)
    fail("query_start: ", query_start.size(), " entries for ", context_length.size(),
         " sequences, expected one more");
  if (query_start[0] != 0) fail("query_start: begins with ", query_start[0], ", expected 0");
  if (!block_table.empty() &&
      block_table.size() != context_length.size() * static_cast<std::size_t>(table_width))
    fail("block_table: ", block_table.size(), " entries, expected ", context_length.size(), " rows of ",
         table_width);
  if (first_key.size() != (has_table ? 0 : context_length.size()))
    fail("first_key: ", first_key.size(), " entries for ", context_length.size(), " sequences",
         has_table ? " with blocks, expected none" : ", expected one each");
  const std::int64_t most =
      has_table ? std::min<std::int64_t>(std::int64_t{table_width} * room_.shape.block_size, kMostContext)
                : kMostContext;
  std::int64_t pieces = 0;
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t rows = query_start[i + 1] - query_start[i];
    if (rows < 0) fail("query_start: falls from ", query_start[i], " to ", query_start[i + 1]);
    if (rows == 0) continue;  // padding
    if (context_length[i] < rows || context_length[i] > most)
      fail("context_length: ", context_length[i], " of sequence ", i, ", expected ", rows,
           ", its query rows, to ", most, has_table ? ", what its row of the block table holds" : "");
    if (kernels_ == AttentionKernels::decode && rows > few_tokens_)
      fail("decode: ", rows, " query rows of sequence ", i, ", expected at most ", few_tokens_, " with ",
           room_.shape.group(), " query heads a KV head");
    pieces += rows > few_tokens_ ? cuda::divide_up(rows, unit_tokens()) : cuda::chunks_of(context_length[i]);
  }
  if (pieces * room_.shape.kv_heads > kMostUnits)
    fail("attention: ", pieces * room_.shape.kv_heads, " pieces of work, expected at most ", kMostUnits);
  if (room_.captured) check_limits(lengths);
}

void AttentionStep::check_limits(const StepLengths& lengths) const {
  const auto& [query_start, context_length, table_width, block_table, first_key] = lengths;
  for (std::size_t i = 0; i < context_length.size(); ++i)
    if (query_start[i + 1] > query_start[i] && context_length[i] > room_.context)
      fail("context_length: ", context_length[i], " of sequence ", i, ", expected at most ", room_.context,
           ", the most that was captured");
  if (context_length.size() > static_cast<std::size_t>(room_.sequences))
    fail("query_start: ", context_length.size(), " sequences, expected at most ", room_.sequences,
         ", the most that were captured");
  if (query_start.back() > room_.tokens)
    fail("query_start: ", query_start.back(), " query rows, expected at most ", room_.tokens,
         ", the most that were captured");
}

/// How many blocks or keys that takes.
std::int64_t AttentionStep::check_places(const StepLengths& lengths) const {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < lengths.context_length.size(); ++i) {
    if (lengths.query_start[i + 1] == lengths.query_start[i]) continue;
    const std::int32_t context = lengths.context_length[i];
    if (!lengths.first_key.empty()) {
      const std::int64_t first = lengths.first_key[i];
      if (first < 0 || first > std::numeric_limits<std::int64_t>::max() - context)
        fail("first_key: ", first, " of sequence ", i, ", expected where a key lies");
      most = std::max(most, first + context);
    }
    if (lengths.block_table.empty()) continue;
    const std::int32_t* const row =
        lengths.block_table.data() + i * static_cast<std::size_t>(lengths.table_width);
    for (std::int32_t j = 0; j < cuda::divide_up(context, room_.shape.block_size); ++j) {
      if (row[j] < 0) fail("block_table: ", row[j], " at [", i, ", ", j, "], expected a block");
      most = std::max(most, std::int64_t{row[j]} + 1);
    }
  }
  return most;
}

void AttentionStep::build(const StepLengths& lengths) {
  check_lengths(lengths);
  key_blocks_ = check_places(lengths);
  const auto& query_start = lengths.query_start;
  const auto& context_length = lengths.context_length;
  const std::int32_t kv_heads = room_.shape.kv_heads;
  few_.build(query_start, context_length, kv_heads, few_tokens_);
  many_.build_units(query_start, context_length, kv_heads, unit_tokens(), few_tokens_);
  skips_ = decide_skipping();
  if (room_.captured) return;
  room_.few_units = few_units();
  room_.many_units = many_units();
  room_.slots = few_.slots;
  room_.sequences = static_cast<std::int32_t>(context_length.size());
  room_.tokens = query_start.back();
  room_.few_tokens = 1;
  room_.context = 0;
  for (std::size_t i = 0; i < context_length.size(); ++i) {
    const std::int32_t rows = query_start[i + 1] - query_start[i];
    if (rows == 0) continue;
    room_.context = std::max(room_.context, context_length[i]);
    if (rows <= few_tokens_) room_.few_tokens = std::max(room_.few_tokens, rows);
  }
}

bool AttentionStep::decide_skipping() const {
  if (!decodes_for_hopper()) return false;
  if (skip_values_ != SkipValues::by_density) return skip_values_ == SkipValues::yes;
  return density_.skips(few_units(), room_.device.multiprocessors);
}

void AttentionStep::write_units(std::span<std::int32_t> to) const {
  assert(static_cast<std::int64_t>(to.size()) == 8 * room_.unit_rows());
  std::int32_t* at = to.data();
  const auto write = [&](const auto& units, const auto& empty, std::int32_t room) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(room); ++i, at += 8)
      std::memcpy(at, i < units.size() ? &units[i] : &empty, 32);
  };
  write(few_.units, empty_few_unit(room_.few_is_plain), room_.few_units);
  write(many_.units, empty_many_unit(room_.many_is_plain), room_.many_units);
}

std::string AttentionStep::path() const {
  if (room_.unit_rows() == 0) return "none: no query rows";
  if (room_.few_units == 0) return describe(many_path_);
  std::string few = describe(few_path_);
  if (room_.many_units == 0) return few;
  const std::string many = describe(many_path_);
  return few == many ? few : few + ", " + many;
}

void AttentionStep::run(const StepMemory& memory, const LayerTensors& given, bool together,
                        cudaStream_t stream) const {
  LayerTensors layer = given;
  check_layer(layer, room_, key_blocks_);
  if (room_.unit_rows() == 0) return;
  check_memory(memory, room_, counts_values(), layer.query.device);
  const DeviceGuard guard(layer.query.device);
  const bool has_decode = room_.few_units > 0 && !room_.few_is_plain;
  const bool has_prefill = room_.many_units > 0 && !room_.many_is_plain;
  const DType dtype = *layer.query.dtype;
  const std::int32_t head_dim = room_.shape.head_dim;
  cuda::DecodeArgs decode;
  cuda::PrefillArgs prefill;
  if (has_decode) decode = decode_args(room_, memory, layer, skips_);
  if (has_prefill) prefill = prefill_args(room_, memory, layer);
  if (together && has_decode && has_prefill && few_units() > 0 && many_units() > 0 &&
      cuda::mixed_takes(decode, prefill, dtype)) {
    const std::int32_t blocks =
        cuda::mixed_decode_blocks(few_, many_, head_dim, room_.device.multiprocessors);
    return cuda::run_mixed(decode, prefill, blocks, dtype, head_dim, layer.pool_size, stream);
  }
  // Everything that can be refused was refused above, or is by the first launch.
  if (has_prefill) cuda::run_prefill(prefill, dtype, head_dim, layer.pool_size, stream);
  if (room_.uses_plain())
    cuda::run_plain(plain_args(room_, memory, layer), dtype, head_dim, layer.pool_size, stream);
  if (has_decode) cuda::run_decode(decode, dtype, head_dim, layer.pool_size, stream);
}

}  // namespace asynct::extension
