#include "asynct/python/attention_room.h"

#include <algorithm>

#include "asynct/ops/attention/cuda/plain_policy.h"
#include "asynct/ops/attention/cuda/policy.h"

namespace asynct::extension {

std::int64_t StepRoom::partial_floats() const {
  return std::int64_t{slots} * cuda::kDecodeRows * shape.head_dim;
}

std::int64_t StepRoom::arrived_words() const { return 2 * std::int64_t{slots} + (counts_taken() ? 2 : 0); }

std::int64_t StepRoom::span_sum_floats() const {
  if (many_units == 0) return 0;
  if (!many_is_plain)
    return cuda::spans_of(context) < 2
               ? 0
               : std::int64_t{device.multiprocessors} * cuda::kPrefillRows * shape.head_dim;
  if (cuda::chunks_of(context) < 2) return 0;
  const std::int32_t blocks =
      std::min(many_units, device.multiprocessors * cuda::plain_many_blocks(shape.head_dim));
  return std::int64_t{2} * blocks * cuda::kPlainRows * shape.head_dim;  // a chunk's and a span's
}

}  // namespace asynct::extension
