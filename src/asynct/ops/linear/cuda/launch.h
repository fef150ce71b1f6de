#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "asynct/ops/linear/cuda/linear.h"

// The kernels behind run_linear, which checks arguments before. All give the same bits.
namespace asynct::cuda {

/// For at most 64 rows, fast for the first 8, of a weight for which direct_steps() is not 0.
template <class Epilogue>
void launch_direct(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream);

/// For few rows.
template <class Epilogue>
void launch_stream(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                   const Epilogue& epilogue, cudaStream_t stream);

/// For many rows.
template <class Epilogue>
void launch_tiles(const LinearWeight& weight, const LinearInput& x, std::int32_t rows,
                  const Epilogue& epilogue, cudaStream_t stream);

}  // namespace asynct::cuda
