#pragma once

#include <algorithm>

#include "asynct/ops/attention/cuda/prefill.cuh"
#include "asynct/ops/cuda/device.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

template <class Traits>
void launch_prefill(const PrefillArgs& args, cudaStream_t stream) {
  if (args.unit_count == 0) return;
  if (args.taken == nullptr) fail("prefill: no counters for the units that are taken, expected two zeros");
  constexpr int kSharedBytes = PrefillLayout<Traits>::kSharedBytes;
  const int blocks = std::min(args.unit_count, prepare<prefill_kernel<Traits>>(kSharedBytes));
  prefill_kernel<Traits><<<blocks, Traits::kThreads, kSharedBytes, stream>>>(args);
  check_launch("prefill");
}

}  // namespace asynct::cuda
