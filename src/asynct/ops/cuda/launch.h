#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

/// Launches `kernel` so that it may begin while the kernel before it ends: it must call wait_for_launcher
/// (grid.cuh) in every block, before it reads or writes what an earlier kernel touches.
template <class Args>
void launch_overlapped(void (*kernel)(Args), const char* name, dim3 grid, dim3 block, const Args& args,
                       cudaStream_t stream, int shared_bytes = 0) {
  cudaLaunchAttribute overlap = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  overlap.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {.gridDim = grid,
                                     .blockDim = block,
                                     .dynamicSmemBytes = static_cast<std::size_t>(shared_bytes),
                                     .stream = stream,
                                     .attrs = &overlap,
                                     .numAttrs = 1};
  check(cudaLaunchKernelEx(&config, kernel, args), name);
}

}  // namespace asynct::cuda
