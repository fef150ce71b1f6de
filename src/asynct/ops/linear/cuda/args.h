#pragma once

#include <cuda.h>

#include <cstdint>

// Plain structs that kernels take by value; all pointers are device memory.
namespace asynct::cuda {

// out[T, N] = x[T, K] weight[N, K]^T, but for what an epilogue does with it.

struct StreamArgs {
  CUtensorMap weight;  // dims: 64 columns, row, which 64; box: kStreamDepth columns of kStreamRows rows
  CUtensorMap input;   // likewise; box: kStreamDepth columns of as many rows as the kernel's tokens
  std::int32_t rows = 0;
  std::int32_t outputs = 0;
  std::int32_t steps = 0;  // of kStreamDepth, in a part of K
  std::int32_t parts = 1;
  std::int32_t tiles = 0;  // of kStreamRows weight rows a warpgroup
  std::int32_t stages = 2;
  std::int32_t input_slots = 2;  // a stage has its own, or, if the input is kept, every step
  bool keeps_input = false;      // for all tiles of a block
};

struct TileArgs {
  CUtensorMap weight;  // dims like StreamArgs'; box: 64 columns of as many rows as the kernel wants
  CUtensorMap input;   // likewise
  std::int32_t rows = 0;
  std::int32_t outputs = 0;
  std::int32_t steps = 0;  // of 64, in a part of K
  std::int32_t parts = 1;
  std::int32_t stages = 2;
  std::int32_t group = 1;  // of token tiles that go through all weights together
  std::int32_t token_tiles = 0;
  std::int32_t output_tiles = 0;
};

// What becomes of the sums. Row strides are in elements and even, pointers aligned to 8 bytes; bf16 tensors
// are their bits.

/// Rounds and stores.
struct StoreBf16 {
  std::uint16_t* out = nullptr;  // [T, N]
  std::int64_t stride = 0;
};

struct StoreFloat {
  float* out = nullptr;  // [T, N]
  std::int64_t stride = 0;
};

/// relu(gate) * up, rounded once. Even outputs are gates, odd ones the same neuron's up.
struct StoreReglu {
  std::uint16_t* out = nullptr;  // [T, N / 2]
  std::int64_t stride = 0;
};

/// gamma * clamp(alpha * x + beta, low, high) over all outputs; NaN stays.
struct DyhtView {
  const float* alpha = nullptr;  // [N], like the others; null: x itself
  const float* gamma = nullptr;
  const float* beta = nullptr;  // null: 0
  float low = -1;
  float high = 1;
};

/// residual += post(sums), next_input = next(residual), each rounded.
struct AddResidual {
  std::uint16_t* residual = nullptr;  // [T, N]
  std::int64_t residual_stride = 0;
  std::uint16_t* next_input = nullptr;  // [T, N]; null: none
  std::int64_t next_stride = 0;
  DyhtView post;
  DyhtView next;
};

}  // namespace asynct::cuda
