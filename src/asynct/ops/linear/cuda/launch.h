#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/linear/cuda/linear.h"

// The kernels behind run_linear, which checks arguments before. All give the same bits.
namespace asynct::cuda {

/// For few rows.
template <class Epilogue>
void launch_stream(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream);

/// For many rows.
template <class Epilogue>
void launch_tiles(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream);

}  // namespace asynct::cuda
