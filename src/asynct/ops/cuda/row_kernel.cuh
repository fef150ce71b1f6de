#pragma once

#include <cstdint>
#include <limits>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/grid.cuh"
#include "asynct/ops/cuda/launch.h"
#include "asynct/ops/cuda/row_policy.h"

// The frame of the element-wise kernels: bound by bytes, each element read once and written once, 16 bytes an
// access. A thread keeps one column, whose parameters stay in registers, and has the loads of kRows rows in
// flight before the first is stored, so that an output may be an input.
//
// Of an Op:
//   Args            what the launch passes; Args::rows
//   kMostRows       rows of a thread where there are many
//   Values          of one row and column
//   columns(args)   threads of a row
//   Op(args, column)        runs before the kernel before has ended: may read parameters, not activations
//   prefetch(row, values)   likewise; optional
//   load(row, values), store(row, values)
namespace asynct::cuda {

template <class Op, int kRows>
__global__ void __launch_bounds__(kRowThreads) row_kernel(const __grid_constant__ typename Op::Args args) {
  launch_dependents();
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  const bool used = column < Op::columns(args);
  const Op op(args, used ? column : 0);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows * blockDim.y + threadIdx.y;
  typename Op::Values values[kRows];
  if constexpr (requires { op.prefetch(first, values[0]); }) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t row = first + i * static_cast<int>(blockDim.y);
      if (used && row < args.rows) op.prefetch(row, values[i]);
    }
  }
  wait_for_launcher();
  if (!used) return;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = first + i * static_cast<int>(blockDim.y);
    if (row < args.rows) op.load(row, values[i]);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = first + i * static_cast<int>(blockDim.y);
    if (row < args.rows) op.store(row, values[i]);
  }
}

template <class Op>
void run_rows(const char* name, const typename Op::Args& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  if (args.rows < 0) fail(name, ": ", args.rows, " rows, expected 0 or more");
  const RowGrid grid = row_grid(args.rows, Op::columns(args), Op::kMostRows);
  if (grid.blocks > std::numeric_limits<std::int32_t>::max() || grid.strips > 65535)
    fail(name, ": ", args.rows, " rows of ", Op::columns(args), " pieces are more than a launch takes");
  const dim3 blocks(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.strips));
  const dim3 threads(static_cast<unsigned>(grid.width), static_cast<unsigned>(grid.height));
  launch_overlapped(grid.rows == 1 ? row_kernel<Op, 1> : row_kernel<Op, Op::kMostRows>, name, blocks, threads,
                    args, stream);
}

}  // namespace asynct::cuda
