#include "asynct/ops/rope/rope.h"

#include <cassert>
#include <cmath>

#include "asynct/base/checked.h"
#include "asynct/ops/rope/kernels.h"

namespace asynct {
namespace {

rope::RotateKernel rotate_kernel(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return rope::kScalarRotate;
    case Isa::avx2:
      return rope::kAvx2Rotate;
    case Isa::avx512:
    case Isa::avx512bf16:
    case Isa::amx:
      break;
  }
  return rope::kAvx512Rotate;
}

}  // namespace

Rope::Rope(double theta, std::int64_t head_dim, std::int64_t max_positions)
    : half_(head_dim / 2), max_positions_(max_positions) {
  if (head_dim <= 0 || head_dim % 2 != 0) fail("rope: head size ", head_dim, ", expected an even number");
  if (!(theta > 0)) fail("rope: theta ", theta, ", expected a positive number");
  if (max_positions <= 0) fail("rope: ", max_positions, " positions, expected at least 1");
  const std::size_t entries =
      checked_mul(static_cast<std::size_t>(max_positions), static_cast<std::size_t>(half_), "rope table");
  cos_.resize(entries);
  sin_.resize(entries);
  // Every step rounds to float where the PyTorch reference does; in between, double stands for exact.
  std::vector<float> frequency(static_cast<std::size_t>(half_));
  for (std::size_t i = 0; i < frequency.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(static_cast<float>(theta), static_cast<double>(exponent)));
    frequency[i] = 1.0F / power;
  }
  std::size_t entry = 0;
  for (std::int64_t position = 0; position < max_positions; ++position)
    for (const float f : frequency) {
      const double angle = static_cast<float>(position) * f;
      cos_[entry] = static_cast<float>(std::cos(angle));
      sin_[entry] = static_cast<float>(std::sin(angle));
      ++entry;
    }
}

void Rope::apply(const OpContext& context, float* head, std::int64_t position) const {
  assert(position >= 0 && position < max_positions_);
  const auto entry = static_cast<std::size_t>(position * half_);
  rotate_kernel(context.isa())(head, cos_.data() + entry, sin_.data() + entry, half_);
}

}  // namespace asynct
