#include "asynct/ops/attention/cuda/softmax.h"

#include "asynct/ops/attention/cuda/dispatch.h"
#include "asynct/ops/attention/cuda/prefill_launch.cuh"

namespace asynct::cuda {

void run_softmax_prefill(const PrefillArgs& args, DType dtype, std::int32_t head_dim, cudaStream_t stream) {
  if (dtype != DType::bf16) fail("softmax prefill: dtype ", name(dtype), ", expected bf16");
  by_head_dim("softmax prefill", head_dim,
              [&]<int kDim>() { launch_prefill<SoftmaxTraits<__nv_bfloat16, kDim>>(args, stream); });
}

}  // namespace asynct::cuda
