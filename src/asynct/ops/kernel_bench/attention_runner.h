#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "asynct/ops/attention/attention.h"
#include "asynct/ops/attention/cuda/decode.h"
#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/ops/attention/cuda/plan.h"
#include "asynct/ops/attention/cuda/prefill.h"
#include "asynct/ops/cuda/device_buffer.h"

// The attention kernels with all that they need besides a call's tensors: plan, factors, partial sums.
namespace asynct::kernel_bench {

/// One step. bf16; the cache is [blocks, block_size, kv_heads, head_dim] with key_strides' strides.
struct AttentionStep {
  AttentionConfig config;
  AttentionHeadParams params;
  std::int32_t block_size = 16;
  std::int32_t blocks = 0;                   // of the cache
  std::int32_t max_blocks = 0;               // of a row of the block table
  std::vector<std::int32_t> query_start;     // [sequences + 1]
  std::vector<std::int32_t> context_length;  // [sequences]
  cuda::KvView layout;                       // strides of keys and values; data is not used
  bool skip_values = false;                  // decode reads only value rows that are needed
};

/// Device memory of one call.
struct AttentionTensors {
  const void* query = nullptr;  // [T, H, D], contiguous
  const void* key = nullptr;
  const void* value = nullptr;
  const std::int32_t* block_table = nullptr;
  void* out = nullptr;
};

/// Error for lengths, blocks or heads that contradict each other.
void validate(const AttentionStep& step);

class PrefillRunner;

class DecodeRunner {
 public:
  explicit DecodeRunner(const AttentionStep& step);
  void run(const AttentionTensors& tensors, cudaStream_t stream) const;

 private:
  friend void run_together(const DecodeRunner& decode, const AttentionTensors& decode_tensors,
                           const PrefillRunner& prefill, const AttentionTensors& prefill_tensors,
                           cudaStream_t stream);
  cuda::DecodeArgs args_of(const AttentionTensors& tensors) const;

  AttentionStep step_;
  cuda::DecodePlan plan_;
  cuda::DeviceBuffer<cuda::DecodeUnit> units_;
  cuda::DeviceBuffer<cuda::HeadFactors> factors_;
  cuda::DeviceBuffer<float> partial_;
  cuda::DeviceBuffer<std::uint32_t> arrived_;
  cuda::DecodeArgs args_;
};

class PrefillRunner {
 public:
  explicit PrefillRunner(const AttentionStep& step);
  void run(const AttentionTensors& tensors, cudaStream_t stream) const;

 private:
  friend void run_together(const DecodeRunner& decode, const AttentionTensors& decode_tensors,
                           const PrefillRunner& prefill, const AttentionTensors& prefill_tensors,
                           cudaStream_t stream);
  cuda::PrefillArgs args_of(const AttentionTensors& tensors) const;

  AttentionStep step_;
  cuda::PrefillPlan plan_;
  cuda::DeviceBuffer<cuda::PrefillUnit> units_;
  cuda::DeviceBuffer<float> span_sums_;
  cuda::DeviceBuffer<std::uint32_t> taken_;
  cuda::DeviceBuffer<cuda::HeadFactors> factors_;
  cuda::PrefillArgs args_;
};

/// Either by the plain path.
class PlainRunner {
 public:
  explicit PlainRunner(const AttentionStep& step);
  void run(const AttentionTensors& tensors, cudaStream_t stream) const;

 private:
  AttentionStep step_;
  cuda::PlainPlan plan_;
  cuda::DeviceBuffer<cuda::DecodeUnit> few_;
  cuda::DeviceBuffer<cuda::PrefillUnit> many_;
  cuda::DeviceBuffer<cuda::HeadFactors> factors_;
  cuda::DeviceBuffer<float> partial_;
  cuda::DeviceBuffer<std::uint32_t> arrived_;
  cuda::DeviceBuffer<float> sums_;
  cuda::PlainArgs args_;
};

/// Decode and prefill in one launch.
void run_together(const DecodeRunner& decode, const AttentionTensors& decode_tensors,
                  const PrefillRunner& prefill, const AttentionTensors& prefill_tensors, cudaStream_t stream);

}  // namespace asynct::kernel_bench
