#pragma once

#include <cstdint>

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/policy.h"

// Where decode and the plain path's few rows leave the sums of a sequence's chunks, and the order in which
// they are added (policy.h). Who goes through all chunks adds in the same order as it comes to them
// (end_chunk in prefill_rows.cuh and plain_many.cuh).
namespace asynct::cuda {

/// A chunk's sum among the partial ones, from a row's column on.
template <int kDim>
__device__ inline float* partial_sum(float* partial, int slot, int row, int column) {
  return partial + (static_cast<std::int64_t>(slot) * kDecodeRows + row) * kDim + column;
}

/// After a unit has left its chunk's sum in its slot: who completes a span adds up its chunks, who completes
/// the last span adds up those. Which one that is changes nothing. Calls last_to_arrive(counter, all), true
/// for who completes `all`, and add_slots(first, step, count, keep) for sums `step` slots apart, which are
/// kept in the first or else are the result.
template <class Args, class LastToArrive, class AddSlots>
__device__ inline void add_up_chunks(const Args& args, const DecodeUnit& unit, int chunks,
                                     const LastToArrive& last_to_arrive, const AddSlots& add_slots) {
  const int span = unit.chunk / kSpanChunks;
  const int in_span = min(kSpanChunks, chunks - span * kSpanChunks);
  const int spans = divide_up(chunks, kSpanChunks);
  const int first = unit.first_slot + span * kSpanChunks;
  if (!last_to_arrive(args.arrived + unit.first_slot + span, in_span)) return;
  add_slots(first, 1, in_span, spans > 1);
  if (spans == 1 || !last_to_arrive(args.arrived + args.slots + unit.first_slot, spans)) return;
  add_slots(unit.first_slot, kSpanChunks, spans, false);
}

}  // namespace asynct::cuda
