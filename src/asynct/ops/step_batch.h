#pragma once

#include <cstdint>
#include <span>

namespace asynct {

/// One forward pass over B sequences and T rows, packed without padding. The arrays are what vLLM hands an
/// attention backend, so the CPU engine, the CUDA engine and the plugin differ in who fills them, never in
/// what they mean. Sequences with one row (decode) come first.
struct StepBatch {
  std::span<const std::int32_t> tokens;          // [T] token ids
  std::span<const std::int32_t> positions;       // [T] position of each row in its sequence
  std::span<const std::int32_t> query_start;     // [B + 1] first row of each sequence; query_start[B] == T
  std::span<const std::int32_t> context_length;  // [B] keys of the sequence, this step's included
  std::span<const std::int32_t> block_table;     // [B, max_blocks] block of the i-th page of each sequence
  std::int32_t max_blocks = 0;                   // row length of block_table
  std::int32_t expected_blocks = 0;  // what it may come to while these sequences last; for memory only
  std::span<const std::int64_t> slot_mapping;  // [T] block * block_size + offset, -1 = do not write
  std::span<const std::int32_t> logits_rows;   // [R] rows whose final hidden state is wanted, ascending

  std::int64_t rows() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t sequences() const { return static_cast<std::int64_t>(context_length.size()); }
  std::span<const std::int32_t> blocks_of(std::int64_t sequence) const {
    return block_table.subspan(static_cast<std::size_t>(sequence * max_blocks),
                               static_cast<std::size_t>(max_blocks));
  }
};

}  // namespace asynct
