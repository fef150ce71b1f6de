#pragma once

#include <cuda_runtime_api.h>

#include "asynct/base/error.h"

namespace asynct::cuda {

/// Throws Error that names the call. Errors of earlier kernels surface here too.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail("CUDA: ", call, ": ", cudaGetErrorString(status));
}

/// After a kernel launch: a launch that was refused (shared memory, grid) reports it nowhere else.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace asynct::cuda
