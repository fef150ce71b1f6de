// A plain C face of the kernels for programs that load them beside others, as peers.py does: a handle holds a
// step's plan, and each run is launches on the caller's stream. Functions that can fail return null or 1;
// asynct_last_error() then says why. Pointers of a run are device memory.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "asynct/base/error.h"
#include "asynct/ops/kernel_bench/attention_runner.h"
#include "asynct/ops/kernel_bench/memory_kernels.h"
#include "cuda_core_decode.h"

namespace asynct::kernel_bench {
namespace {

thread_local std::string last_error;

/// Calls `work`; what it throws becomes the last error, and `otherwise` the result.
template <class Result, class Work>
Result guarded(Result otherwise, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    last_error = error.what();
    return otherwise;
  }
}

class CudaCoreDecodeRunner {
 public:
  explicit CudaCoreDecodeRunner(const AttentionStep& step);
  void run(const AttentionTensors& tensors, cudaStream_t stream) const;

 private:
  cuda::DeviceBuffer<std::int32_t> context_;
  cuda::DeviceBuffer<float> slope_, bias_, sigma_, gain_, partial_;
  CudaCoreDecodeArgs args_;
  std::int32_t head_dim_;
};

CudaCoreDecodeRunner::CudaCoreDecodeRunner(const AttentionStep& step)
    : context_(step.context_length), head_dim_(step.config.head_dim) {
  validate(step);
  const AttentionConfig& config = step.config;
  const auto heads = static_cast<std::size_t>(config.heads);
  const auto factors = [&](const std::vector<float>& given, float absent, float times) {
    std::vector<float> values(heads, absent * times);
    for (std::size_t i = 0; i < given.size(); ++i) values[i] = given[i] * times;
    return cuda::DeviceBuffer<float>(values);
  };
  slope_ = factors(step.params.slope, 1, config.scale);
  bias_ = factors(step.params.bias, 0, 1);
  sigma_ = factors(step.params.sigma, 0, config.scale / static_cast<float>(config.pool_size));
  gain_ = factors(step.params.gain, 1, 1);
  std::int32_t longest = 1;
  for (std::size_t i = 0; i < step.context_length.size(); ++i) {
    longest = std::max(longest, step.context_length[i]);
    if (step.query_start[i + 1] - step.query_start[i] != 1)
      fail("CUDA-core decode: sequence ", i, " has not one row");
  }
  const std::int32_t partitions = (longest + kCudaCorePartition - 1) / kCudaCorePartition;
  partial_ = cuda::DeviceBuffer<float>(step.context_length.size() * heads *
                                       static_cast<std::size_t>(partitions * config.head_dim));
  std::int32_t shift = 0;
  while (1 << shift < step.block_size) ++shift;
  args_ = {.context_length = context_.data(),
           .slope = slope_.data(),
           .bias = bias_.data(),
           .sigma = sigma_.data(),
           .gain = gain_.data(),
           .partial = partial_.data(),
           .sequences = static_cast<std::int32_t>(step.context_length.size()),
           .heads = config.heads,
           .kv_heads = config.kv_heads,
           .partitions = partitions,
           .max_blocks = step.max_blocks,
           .block_shift = shift,
           .pool_size = config.pool_size};
}

void CudaCoreDecodeRunner::run(const AttentionTensors& tensors, cudaStream_t stream) const {
  CudaCoreDecodeArgs args = args_;
  args.query = tensors.query;
  args.key = tensors.key;
  args.value = tensors.value;
  args.block_table = tensors.block_table;
  args.out = tensors.out;
  run_cuda_core_decode(args, head_dim_, stream);
}

struct Handle {
  std::unique_ptr<DecodeRunner> decode;
  std::unique_ptr<PrefillRunner> prefill;
  std::unique_ptr<CudaCoreDecodeRunner> cuda_core;
};

}  // namespace
}  // namespace asynct::kernel_bench

extern "C" {

/// One step over a cache [blocks, block_size, kv_heads, head_dim], contiguous bf16. Arrays are host memory,
/// copied; slope, bias and gain may be null.
struct AsynctAttention {
  std::int32_t sequences, heads, kv_heads, head_dim, pool_size, block_size, blocks, max_blocks;
  const std::int32_t* query_start;     // [sequences + 1]
  const std::int32_t* context_length;  // [sequences]
  const float* sigma;                  // [heads], as the next three
  const float* slope;
  const float* bias;
  const float* gain;
  float scale;
};

const char* asynct_last_error() { return asynct::kernel_bench::last_error.c_str(); }

/// `kernel` is "decode", "decode_needed" (which reads needed value rows only), "prefill",
/// "softmax_prefill" or "cuda_core_decode".
void* asynct_attention_create(const char* kernel, const AsynctAttention* given) {
  using namespace asynct;
  using namespace asynct::kernel_bench;
  return guarded(static_cast<void*>(nullptr), [&]() -> void* {
    const auto count = static_cast<std::size_t>(given->sequences);
    const auto heads = static_cast<std::size_t>(given->heads);
    const auto of_heads = [&](const float* values) {
      return values == nullptr ? std::vector<float>() : std::vector<float>(values, values + heads);
    };
    const std::int64_t row = std::int64_t{given->kv_heads} * given->head_dim;
    const std::string name = kernel;
    const AttentionStep step = {
        .config = {.kind = name == "softmax_prefill" ? AttentionKind::softmax : AttentionKind::asynci,
                   .heads = given->heads,
                   .kv_heads = given->kv_heads,
                   .head_dim = given->head_dim,
                   .scale = given->scale,
                   .pool_size = given->pool_size},
        .params = {.sigma = of_heads(given->sigma),
                   .slope = of_heads(given->slope),
                   .bias = of_heads(given->bias),
                   .gain = of_heads(given->gain)},
        .block_size = given->block_size,
        .blocks = given->blocks,
        .max_blocks = given->max_blocks,
        .query_start = {given->query_start, given->query_start + count + 1},
        .context_length = {given->context_length, given->context_length + count},
        .layout = {.block_stride = row * given->block_size,
                   .head_stride = given->head_dim,
                   .token_stride = row},
        .skip_values = name == "decode_needed"};
    auto handle = std::make_unique<Handle>();
    if (name == "decode" || name == "decode_needed")
      handle->decode = std::make_unique<DecodeRunner>(step);
    else if (name == "prefill" || name == "softmax_prefill")
      handle->prefill = std::make_unique<PrefillRunner>(step);
    else if (name == "cuda_core_decode")
      handle->cuda_core = std::make_unique<CudaCoreDecodeRunner>(step);
    else
      fail("kernel \"", name,
           "\", expected decode, decode_needed, prefill, softmax_prefill or cuda_core_decode");
    return handle.release();
  });
}

/// query and out [T, heads, head_dim], key and value the cache, table [sequences, max_blocks].
int asynct_attention_run(const void* handle, const void* query, const void* key, const void* value,
                         const std::int32_t* table, void* out, void* stream) {
  using namespace asynct::kernel_bench;
  return guarded(1, [&] {
    const auto& kernels = *static_cast<const Handle*>(handle);
    const AttentionTensors tensors = {
        .query = query, .key = key, .value = value, .block_table = table, .out = out};
    auto* const on = static_cast<cudaStream_t>(stream);
    if (kernels.decode != nullptr) kernels.decode->run(tensors, on);
    if (kernels.prefill != nullptr) kernels.prefill->run(tensors, on);
    if (kernels.cuda_core != nullptr) kernels.cuda_core->run(tensors, on);
    return 0;
  });
}

void asynct_attention_destroy(void* handle) { delete static_cast<asynct::kernel_bench::Handle*>(handle); }

/// Reads two pieces of device memory, multiples of 16 bytes: what that takes at the least.
int asynct_read(int setting, const void* first, std::size_t first_bytes, const void* second,
                std::size_t second_bytes, void* stream) {
  using namespace asynct::kernel_bench;
  return guarded(1, [&] {
    run_read(setting, {first, first_bytes}, {second, second_bytes}, nullptr,
             static_cast<cudaStream_t>(stream));
    return 0;
  });
}
}
