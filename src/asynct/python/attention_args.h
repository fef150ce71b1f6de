#pragma once

#include "asynct/ops/attention/cuda/args.h"
#include "asynct/ops/attention/cuda/plain.h"
#include "asynct/python/attention_tensors.h"

// Arguments of the kernels for tensors that were checked. Describing a cache to the copy engine can fail:
// Error.
namespace asynct::extension {

/// Of units of few rows.
cuda::DecodeArgs decode_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer,
                             bool skip_values);

/// Of units of many rows.
cuda::PrefillArgs prefill_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer);

/// Of the units that are the plain path's.
cuda::PlainArgs plain_args(const StepRoom& room, const StepMemory& memory, const LayerTensors& layer);

/// A piece of work that reads and writes nothing, for launches with room to spare. Each kernel has its own: a
/// unit of decode without keys is left out, one of prefill goes through its keys and has no rows to write. In
/// the plain path few rows take a unit for done that has one chunk and is not that chunk, many rows one
/// without keys; both read no key, nor the block table.
cuda::DecodeUnit empty_few_unit(bool is_plain);
cuda::PrefillUnit empty_many_unit(bool is_plain);

}  // namespace asynct::extension
