#pragma once

#include <cuda_runtime_api.h>

#include "asynct/base/error.h"

namespace asynct::cuda {

/// What the runtime or the driver reports: no argument is wrong, the device or an earlier kernel is.
class CudaError : public Error {
 public:
  using Error::Error;
};

/// Throws CudaError that names the call. Errors of earlier kernels surface here too.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw CudaError(cat("CUDA: ", call, ": ", cudaGetErrorString(status)));
}

/// After a kernel launch: a launch that was refused (shared memory, grid) reports it nowhere else.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace asynct::cuda
