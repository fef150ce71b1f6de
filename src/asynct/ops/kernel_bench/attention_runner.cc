#include "asynct/ops/kernel_bench/attention_runner.h"

#include <algorithm>
#include <bit>

#include "asynct/base/error.h"
#include "asynct/ops/attention/cuda/factors.h"
#include "asynct/ops/attention/cuda/mixed.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/ops/attention/cuda/policy.h"
#include "asynct/ops/attention/cuda/softmax.h"
#include "asynct/ops/cuda/device.h"

namespace asynct::kernel_bench {
namespace {

std::int32_t block_shift(const AttentionStep& step) {
  return std::countr_zero(static_cast<std::uint32_t>(step.block_size));
}

cuda::KvView at(cuda::KvView layout, const void* data) {
  layout.data = data;
  return layout;
}

std::int32_t most_tokens(const AttentionStep& step) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < step.context_length.size(); ++i)
    most = std::max(most, step.query_start[i + 1] - step.query_start[i]);
  return most;
}

}  // namespace

void validate(const AttentionStep& step) {
  const AttentionConfig& config = step.config;
  if (config.heads < 1 || config.kv_heads < 1 || config.heads % config.kv_heads != 0)
    fail("attention: ", config.heads, " query heads and ", config.kv_heads,
         " KV heads, expected a multiple of them");
  if (step.block_size < 1 || !std::has_single_bit(static_cast<std::uint32_t>(step.block_size)))
    fail("attention: blocks of ", step.block_size, " tokens, expected a power of two");
  if (step.query_start.size() != step.context_length.size() + 1)
    fail("attention: ", step.query_start.size(), " starts of query rows for ", step.context_length.size(),
         " sequences, expected one more");
  const auto heads = static_cast<std::size_t>(config.heads);
  for (const auto* values : {&step.params.sigma, &step.params.slope, &step.params.bias, &step.params.gain})
    if (!values->empty() && values->size() != heads)
      fail("attention: ", values->size(), " values of a head's parameter, expected ", heads);
  for (std::size_t i = 0; i < step.context_length.size(); ++i) {
    const std::int32_t rows = step.query_start[i + 1] - step.query_start[i];
    const std::int64_t most = std::int64_t{step.max_blocks} * step.block_size;
    if (rows < 0 || rows > step.context_length[i] || step.context_length[i] > most)
      fail("attention: sequence ", i, " with ", rows, " rows and ", step.context_length[i],
           " keys, expected no fewer keys than rows and at most ", most);
  }
}

DecodeRunner::DecodeRunner(const AttentionStep& step) : step_(step) {
  validate(step);
  const AttentionConfig& config = step.config;
  const std::int32_t group = config.heads / config.kv_heads;
  const std::int32_t rows = group * most_tokens(step);
  if (rows > cuda::kDecodeRows)
    fail("decode: ", rows, " query rows a KV head, expected at most ", cuda::kDecodeRows);
  plan_.build(step.query_start, step.context_length, config.kv_heads);
  const cuda::AttentionFactors factors = cuda::attention_factors(config, step.params, DType::bf16);
  units_ = cuda::DeviceBuffer<cuda::DecodeUnit>(plan_.units);
  factors_ = cuda::DeviceBuffer<cuda::HeadFactors>(factors.heads);
  partial_ = cuda::DeviceBuffer<float>(static_cast<std::size_t>(plan_.slots) * cuda::kDecodeRows *
                                       static_cast<std::size_t>(config.head_dim));
  arrived_ = cuda::DeviceBuffer<std::uint32_t>(2 * static_cast<std::size_t>(plan_.slots));
  arrived_.fill_bytes(0);
  args_ = {.query_stride = std::int64_t{config.heads} * config.head_dim,
           .out_stride = std::int64_t{config.heads} * config.head_dim,
           .factors = factors_.data(),
           .units = units_.data(),
           .partial = partial_.data(),
           .arrived = arrived_.data(),
           .slots = plan_.slots,
           .unit_count = static_cast<std::int32_t>(plan_.units.size()),
           .max_blocks = step.max_blocks,
           .block_shift = block_shift(step),
           .group = group,
           .most_rows = rows,
           .form = factors.form,
           .skip_values = step.skip_values};
}

cuda::DecodeArgs DecodeRunner::args_of(const AttentionTensors& tensors) const {
  const AttentionConfig& config = step_.config;
  cuda::DecodeArgs args = args_;
  args.query = tensors.query;
  args.out = tensors.out;
  args.block_table = tensors.block_table;
  cuda::set_cache(args, at(step_.layout, tensors.key), at(step_.layout, tensors.value), DType::bf16,
                  step_.blocks, step_.block_size, config.kv_heads, config.head_dim);
  return args;
}

void DecodeRunner::run(const AttentionTensors& tensors, cudaStream_t stream) const {
  cuda::run_decode(args_of(tensors), DType::bf16, step_.config.head_dim, step_.config.pool_size, stream);
}

PrefillRunner::PrefillRunner(const AttentionStep& step) : step_(step) {
  validate(step);
  const AttentionConfig& config = step.config;
  const std::int32_t group = config.heads / config.kv_heads;
  plan_.build(step.query_start, step.context_length, config.kv_heads, group);
  const cuda::AttentionFactors factors = config.kind == AttentionKind::softmax
                                             ? cuda::softmax_factors(config)
                                             : cuda::attention_factors(config, step.params, DType::bf16);
  units_ = cuda::DeviceBuffer<cuda::PrefillUnit>(plan_.units);
  factors_ = cuda::DeviceBuffer<cuda::HeadFactors>(factors.heads);
  span_sums_ =
      cuda::DeviceBuffer<float>(static_cast<std::size_t>(cuda::multiprocessor_count() * cuda::kPrefillRows) *
                                static_cast<std::size_t>(config.head_dim));
  taken_ = cuda::DeviceBuffer<std::uint32_t>(2);
  taken_.fill_bytes(0);
  args_ = {.out_stride = std::int64_t{config.heads} * config.head_dim,
           .factors = factors_.data(),
           .units = units_.data(),
           .taken = taken_.data(),
           .span_sums = span_sums_.data(),
           .unit_count = static_cast<std::int32_t>(plan_.units.size()),
           .max_blocks = step.max_blocks,
           .block_shift = block_shift(step),
           .form = factors.form};
}

cuda::PrefillArgs PrefillRunner::args_of(const AttentionTensors& tensors) const {
  const AttentionConfig& config = step_.config;
  cuda::PrefillArgs args = args_;
  args.out = tensors.out;
  args.block_table = tensors.block_table;
  cuda::set_tensors(args,
                    {.dtype = DType::bf16,
                     .query = tensors.query,
                     .query_stride = std::int64_t{config.heads} * config.head_dim,
                     .rows = step_.query_start.back(),
                     .heads = config.heads,
                     .kv_heads = config.kv_heads,
                     .head_dim = config.head_dim,
                     .blocks = step_.blocks,
                     .block_size = step_.block_size},
                    at(step_.layout, tensors.key), at(step_.layout, tensors.value));
  return args;
}

void PrefillRunner::run(const AttentionTensors& tensors, cudaStream_t stream) const {
  const AttentionConfig& config = step_.config;
  if (config.kind == AttentionKind::softmax)
    return cuda::run_softmax_prefill(args_of(tensors), DType::bf16, config.head_dim, stream);
  cuda::run_prefill(args_of(tensors), DType::bf16, config.head_dim, config.pool_size, stream);
}

PlainRunner::PlainRunner(const AttentionStep& step) : step_(step) {
  validate(step);
  const AttentionConfig& config = step.config;
  const std::int32_t group = config.heads / config.kv_heads;
  const auto dims = static_cast<std::size_t>(config.head_dim);
  plan_.build(step.query_start, step.context_length, config.kv_heads, group);
  const cuda::AttentionFactors factors = cuda::attention_factors(config, step.params, DType::bf16);
  few_ = cuda::DeviceBuffer<cuda::DecodeUnit>(plan_.few.units);
  many_ = cuda::DeviceBuffer<cuda::PrefillUnit>(plan_.many.units);
  factors_ = cuda::DeviceBuffer<cuda::HeadFactors>(factors.heads);
  partial_ = cuda::DeviceBuffer<float>(static_cast<std::size_t>(plan_.few.slots) * cuda::kDecodeRows * dims);
  arrived_ = cuda::DeviceBuffer<std::uint32_t>(2 * static_cast<std::size_t>(plan_.few.slots));
  arrived_.fill_bytes(0);
  sums_ = cuda::DeviceBuffer<float>(static_cast<std::size_t>(2 * cuda::plain_blocks(config.head_dim)) *
                                    cuda::kPlainRows * dims);
  args_ = {.query_stride = std::int64_t{config.heads} * config.head_dim,
           .out_stride = std::int64_t{config.heads} * config.head_dim,
           .factors = factors_.data(),
           .few = few_.data(),
           .many = many_.data(),
           .partial = partial_.data(),
           .arrived = arrived_.data(),
           .sums = sums_.data(),
           .slots = plan_.few.slots,
           .few_count = static_cast<std::int32_t>(plan_.few.units.size()),
           .many_count = static_cast<std::int32_t>(plan_.many.units.size()),
           .max_blocks = step.max_blocks,
           .block_size = step.block_size,
           .group = group,
           .form = factors.form};
}

void PlainRunner::run(const AttentionTensors& tensors, cudaStream_t stream) const {
  cuda::PlainArgs args = args_;
  args.query = tensors.query;
  args.out = tensors.out;
  args.key = at(step_.layout, tensors.key);
  args.value = at(step_.layout, tensors.value);
  args.block_table = tensors.block_table;
  cuda::run_plain(args, DType::bf16, step_.config.head_dim, step_.config.pool_size, stream);
}

void run_together(const DecodeRunner& decode, const AttentionTensors& decode_tensors,
                  const PrefillRunner& prefill, const AttentionTensors& prefill_tensors,
                  cudaStream_t stream) {
  const AttentionConfig& config = decode.step_.config;
  const std::int32_t blocks =
      cuda::mixed_decode_blocks(decode.plan_, prefill.plan_, config.head_dim, cuda::multiprocessor_count());
  cuda::run_mixed(decode.args_of(decode_tensors), prefill.args_of(prefill_tensors), blocks, DType::bf16,
                  config.head_dim, config.pool_size, stream);
}

}  // namespace asynct::kernel_bench
