#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "asynct/ops/cuda/gpu_testing.h"
#include "asynct/python/attention_step.h"

// What attention's tests on the host share.
namespace asynct::extension {

inline constexpr AttentionShape kShape = {.heads = 8, .kv_heads = 2, .head_dim = 128, .block_size = 16};
inline constexpr AttentionDevice kHopper = {.compute_capability = 90, .multiprocessors = 132};
inline constexpr AttentionDevice kAmpere = {.compute_capability = 80, .multiprocessors = 108};

inline AttentionStep make_step(AttentionKernels kernels, const AttentionShape& shape = kShape,
                               const AttentionDevice& device = kHopper, SkipValues skip = SkipValues::no) {
  return {shape, kernels, device, skip};
}

inline AttentionShape with_group(AttentionShape shape, std::int32_t group) {
  shape.heads = group * shape.kv_heads;
  return shape;
}

inline AttentionShape with_blocks(AttentionShape shape, std::int32_t size) {
  shape.block_size = size;
  return shape;
}

struct Lengths {
  std::vector<std::int32_t> query_start, context;
  std::int32_t width = 512;
  std::vector<std::int32_t> table = {};
  std::vector<std::int64_t> first_key = {};
};

inline void build(AttentionStep& step, const Lengths& lengths) {
  step.build({lengths.query_start, lengths.context, lengths.width, lengths.table, lengths.first_key});
}

using cuda::expect_error;

template <class Unit>
std::vector<Unit> units_of(const AttentionStep& step, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> words(static_cast<std::size_t>(8 * step.room().unit_rows()), -1);
  step.write_units(words);
  const auto* units = reinterpret_cast<const Unit*>(words.data()) + first;
  return {units, units + count};
}

inline std::vector<cuda::DecodeUnit> few_units_of(const AttentionStep& step) {
  return units_of<cuda::DecodeUnit>(step, 0, step.room().few_units);
}
inline std::vector<cuda::PrefillUnit> many_units_of(const AttentionStep& step) {
  return units_of<cuda::PrefillUnit>(step, step.room().few_units, step.room().many_units);
}

/// Tensors that fit a step of kShape, at addresses that nobody reads.
struct Tensors {
  alignas(16) char memory[16];
  TensorRef of(DType dtype, std::vector<std::int64_t> shape) {
    std::vector<std::int64_t> stride(shape.size(), 1);
    for (std::size_t i = shape.size() - 1; i > 0; --i) stride[i - 1] = stride[i] * shape[i];
    return {.data = memory, .dtype = dtype, .on_cuda = true, .shape = shape, .stride = stride};
  }
  LayerTensors layer() {
    return {.query = of(DType::bf16, {3, 8, 128}),
            .key = of(DType::bf16, {10, 16, 2, 128}),
            .value = of(DType::bf16, {10, 16, 2, 128}),
            .factors = of(DType::f32, {8, 4}),
            .out = of(DType::bf16, {3, 8, 128}),
            .form = {}};
  }
  /// Of keys and values in one piece.
  LayerTensors ragged_layer() {
    LayerTensors tensors = layer();
    tensors.key = tensors.value = of(DType::bf16, {60, 2, 128});
    return tensors;
  }
  StepMemory memory_of(const StepRoom& room) {
    StepMemory made = {.units = of(DType::i32, {room.unit_rows(), 8}),
                       .places = of(DType::i32, {room.sequences, 2}),
                       .partial = of(DType::f32, {room.partial_floats()}),
                       .arrived = of(DType::i32, {room.arrived_words()}),
                       .span_sums = of(DType::f32, {room.span_sum_floats()}),
                       .value_count = {}};
    if (room.shape.block_size == 0) made.places = of(DType::i64, {room.sequences});
    return made;
  }
};

}  // namespace asynct::extension
