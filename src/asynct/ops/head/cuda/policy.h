#pragma once

#include <cstdint>

namespace asynct::cuda {

/// A row of logits is scored in pieces of so many tokens. Part of the result: sums of pieces are added in a
/// fixed order. The tile of a product must hold whole pieces.
inline constexpr std::int32_t kPieceTokens = 128;

constexpr std::int32_t pieces_of(std::int32_t vocabulary) {
  return (vocabulary + kPieceTokens - 1) / kPieceTokens;
}

}  // namespace asynct::cuda
