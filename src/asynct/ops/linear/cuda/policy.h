#pragma once

#include <cstdint>

// Sizes that are part of the reduction order, and tiles, which are not.
//
// A product's sum over k runs in blocks of 16 (one matrix instruction) within a part of K, and part sums are
// added in order. How many parts there are depends on the layer's shape only, so a row's result does not
// depend on the rows beside it, nor on the kernel that computes it.
namespace asynct::cuda {

inline constexpr std::int32_t kStreamRows = 64;    // weight rows of a block of the streaming kernel
inline constexpr std::int32_t kStreamDepth = 128;  // k of one of its stages
inline constexpr std::int32_t kMostParts = 8;      // blocks of a cluster on any device

/// Parts of K for a weight [outputs, inputs]: as many as it takes to give every multiprocessor of the largest
/// sm_90 device a block of 64 weight rows, but none below 128 inputs.
constexpr std::int32_t linear_parts(std::int32_t outputs, std::int32_t inputs) {
  const std::int32_t tiles = (outputs + kStreamRows - 1) / kStreamRows;
  std::int32_t parts = 1;
  while (parts < kMostParts && tiles * parts < 128 && inputs % (2 * parts * kStreamDepth) == 0) parts *= 2;
  // Parts of more than 512 inputs would make one chain of instructions too long to hide.
  while (parts < kMostParts && tiles <= 256 && inputs / parts > 256 &&
         inputs % (2 * parts * kStreamDepth) == 0)
    parts *= 2;
  return parts;
}

/// More rows are the tile kernel's; either way they get the same bits.
inline constexpr std::int32_t kMostStreamRows = 128;

/// Columns of the matrix instruction for `rows` tokens: the smallest that holds them, at most 128.
constexpr std::int32_t stream_tokens(std::int32_t rows) {
  std::int32_t tokens = 8;
  while (tokens < rows && tokens < 128) tokens *= 2;
  return tokens;
}

}  // namespace asynct::cuda
