#pragma once

#include <string>
#include <vector>

#include "asynct/model/safetensors_writer.h"
#include "asynct/model/synth.h"

namespace asynct {

/// One tensor of a synthetic checkpoint: normal with `deviation` around `value`, or constant.
struct SynthTensor {
  std::string name;
  Shape shape;
  float deviation = 0;  // 0: all elements are `value`
  float value = 0;
  /// Set: element (or column) 0 of the last axis is this constant in every row.
  std::optional<float> channel0 = {};
};

/// All tensors in file order, matrices first (which keeps them aligned).
std::vector<SynthTensor> synth_tensors(const SynthOptions& options, const SynthShape& shape);

/// Generates the tensor's values on all threads and writes them as tensor `index` of `writer`.
void fill_tensor(const SynthTensor& tensor, const SynthOptions& options, ThreadPool& pool,
                 SafetensorsWriter& writer, std::size_t index);

}  // namespace asynct
