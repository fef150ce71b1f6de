#include "asynct/ops/attention/cuda/mixed.h"

#include <algorithm>

#include "asynct/ops/attention/cuda/dispatch.h"
#include "asynct/ops/attention/cuda/mixed.cuh"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

bool mixed_takes(const DecodeArgs& decode, const PrefillArgs& prefill, DType dtype) {
  return dtype == DType::bf16 && decode.most_rows <= 8 && prefill.form.plain;
}

void run_mixed(const DecodeArgs& decode, const PrefillArgs& prefill, std::int32_t decode_blocks, DType dtype,
               std::int32_t head_dim, std::int32_t pool_size, cudaStream_t stream) {
  if (!mixed_takes(decode, prefill, dtype))
    fail("mixed attention: dtype ", name(dtype), ", ", decode.most_rows, " query rows a KV head",
         prefill.form.plain ? "" : ", slope, bias or scale of their own",
         "; expected bf16, at most 8 rows, slope 1, bias 0, a power of two as scale");
  if (prefill.taken == nullptr)
    fail("mixed attention: no counters for the units that are taken, expected two zeros");
  by_head_dim("mixed attention", head_dim, [&]<int kDim>() {
    by_pool_size("mixed attention", pool_size, [&]<int kPool>() {
      using Decode = DecodeTraits<__nv_bfloat16, kDim, kPool, 1>;
      using Prefill = PrefillTraits<__nv_bfloat16, kDim, kPool, true>;
      constexpr int kSharedBytes = MixedTraits<Decode, Prefill>::kSharedBytes;
      const int blocks = prepare<mixed_kernel<Decode, Prefill>>(kSharedBytes);
      if (decode_blocks < 1 || decode_blocks >= blocks)
        fail("mixed attention: ", decode_blocks, " blocks of decode, expected 1 to ", blocks - 1);
      const int prefill_blocks = std::min(blocks - decode_blocks, prefill.unit_count);
      mixed_kernel<Decode, Prefill>
          <<<decode_blocks + prefill_blocks, Prefill::kThreads, kSharedBytes, stream>>>(decode, prefill,
                                                                                        decode_blocks);
      check_launch("mixed attention");
    });
  });
}

}  // namespace asynct::cuda
