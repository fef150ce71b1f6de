#include "asynct/ops/rope/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "asynct/base/error.h"
#include "asynct/ops/kernel_tables.h"
#include "asynct/ops/rope/kernels.h"

namespace asynct {
namespace {

rope::RotateKernel rotate_kernel(Isa isa) {
  return select_kernels(isa, rope::kScalarRotate, rope::kAvx2Rotate, rope::kAvx512Rotate);
}

}  // namespace

Rope::Rope(double theta, std::int64_t head_dim, std::int64_t max_positions)
    : half_(head_dim / 2), max_positions_(max_positions) {
  if (head_dim <= 0 || head_dim % 2 != 0) fail("rope: head size ", head_dim, ", expected an even number");
  if (!(theta > 0)) fail("rope: theta ", theta, ", expected a positive number");
  if (max_positions <= 0) fail("rope: ", max_positions, " positions, expected at least 1");
  // Every step rounds to float where the PyTorch reference does; in between, double stands for exact.
  frequency_.resize(static_cast<std::size_t>(half_));
  for (std::size_t i = 0; i < frequency_.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(static_cast<float>(theta), static_cast<double>(exponent)));
    frequency_[i] = 1.0F / power;
  }
}

void Rope::prepare(std::int64_t positions) {
  assert(positions <= max_positions_);
  const std::size_t half = frequency_.size();
  for (auto begin = std::ssize(cos_sin_) * kStep; begin < positions; begin += kStep) {
    const std::int64_t end = std::min(begin + kStep, max_positions_);
    std::vector<float>& step = cos_sin_.emplace_back(static_cast<std::size_t>(end - begin) * 2 * half);
    float* entry = step.data();
    for (std::int64_t position = begin; position < end; ++position, entry += 2 * half)
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = static_cast<float>(position) * frequency_[i];
        entry[i] = static_cast<float>(std::cos(angle));
        entry[half + i] = static_cast<float>(std::sin(angle));
      }
  }
}

std::size_t Rope::table_bytes(std::int64_t head_dim, std::int64_t positions) {
  const std::int64_t whole_steps = (positions + kStep - 1) / kStep * kStep;
  return static_cast<std::size_t>(whole_steps * head_dim) * sizeof(float);
}

std::span<const float> Rope::cos_sin(std::int64_t position) const {
  assert(position >= 0 && position < std::ssize(cos_sin_) * kStep && position < max_positions_);
  const std::size_t size = 2 * frequency_.size();
  return std::span(cos_sin_[static_cast<std::size_t>(position / kStep)])
      .subspan(static_cast<std::size_t>(position % kStep) * size, size);
}

void Rope::apply(const OpContext& context, float* head, std::int64_t position) const {
  const float* const entry = cos_sin(position).data();
  rotate_kernel(context.isa())(head, entry, entry + half_, half_);
}

}  // namespace asynct
