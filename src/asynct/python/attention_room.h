#pragma once

#include <cstdint>

namespace asynct::extension {

struct AttentionShape {
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 0;  // 0: each sequence's keys and values lie in one piece

  std::int32_t group() const { return heads / kv_heads; }
};

/// The GPU that a step is planned for.
struct AttentionDevice {
  std::int32_t compute_capability = 90;  // 10 times major plus minor
  std::int32_t multiprocessors = 132;
};

/// What a step's launches take: its plan's numbers; those of captured launches are their limits, whatever the
/// plan. Units of few rows are decode's or the plain path's (DecodeUnit), units of many prefill's or the
/// plain path's (PrefillUnit); both paths leave partial sums and counters at the same places.
struct StepRoom {
  AttentionShape shape;
  AttentionDevice device;
  bool few_is_plain = false;
  bool many_is_plain = false;
  bool captured = false;
  std::int32_t few_units = 0;  // empty ones too
  std::int32_t many_units = 0;
  std::int32_t slots = 0;
  std::int32_t sequences = 0;
  std::int32_t tokens = 0;      // query rows of all sequences
  std::int32_t few_tokens = 1;  // most rows of a sequence of few
  std::int32_t context = 0;     // the longest

  std::int64_t unit_rows() const { return std::int64_t{few_units} + many_units; }
  std::int64_t partial_floats() const;
  std::int64_t arrived_words() const;
  std::int64_t span_sum_floats() const;
  /// Units have `taken` counters behind the partial sums' ones.
  bool counts_taken() const { return many_units > 0 && !many_is_plain; }
  bool uses_plain() const { return (few_units > 0 && few_is_plain) || (many_units > 0 && many_is_plain); }
};

}  // namespace asynct::extension
