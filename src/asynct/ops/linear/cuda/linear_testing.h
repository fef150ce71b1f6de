#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/ops/linear/cuda/linear.h"
#include "asynct/tensor/dtype.h"

// What tests of products on the device share: matrices with gaps that hold NaN, outputs that notice what is
// written outside.
namespace asynct::cuda {

using Random = std::mt19937;
using Bits = std::vector<std::uint16_t>;

inline int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
inline int pick_of(Random& random, const std::vector<int>& values) {
  return values[static_cast<std::size_t>(pick(random, 0, static_cast<int>(values.size()) - 1))];
}
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A matrix of bf16 values in memory with gaps between its rows, which hold NaN.
struct TestMatrix {
  TestMatrix(Random& random, std::int32_t row_count, std::int32_t column_count, float scale, int gap)
      : rows(row_count), columns(column_count), stride(column_count + 8 * gap) {
    std::normal_distribution<float> normal(0, scale);
    bits.assign(at(rows * stride), 0xFFFF);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) bits[at(r * stride + c)] = to_bf16(normal(random)).bits;
    device = DeviceBuffer<std::uint16_t>(bits);
  }
  float value(std::int64_t r, std::int64_t c) const { return to_float(Bf16{bits[at(r * stride + c)]}); }

  std::int32_t rows, columns;
  std::int64_t stride;
  Bits bits;
  DeviceBuffer<std::uint16_t> device;
};

struct Product {
  Product(Random& random, std::int32_t rows, std::int32_t outputs, std::int32_t inputs)
      : x(random, rows, inputs, 1, pick(random, 0, 2)),
        weight(random, outputs, inputs, 1 / std::sqrt(static_cast<float>(inputs)), pick(random, 0, 2)),
        plan(make_linear_weight(weight.device.data(), outputs, inputs, weight.stride)) {}

  LinearInput rows_from(std::int32_t first) const {
    return make_linear_input(x.device.data() + first * x.stride, x.rows - first, x.columns, x.stride);
  }
  double reference(std::int64_t row, std::int64_t n) const {
    double sum = 0;
    for (std::int64_t k = 0; k < x.columns; ++k) sum += double{x.value(row, k)} * weight.value(n, k);
    return sum;
  }

  TestMatrix x, weight;
  LinearWeight plan;
};

/// What a launch wrote, rows `stride` apart; everything else must still be poison.
template <class Element>
struct Output {
  Output(std::int32_t row_count, std::int32_t column_count, int gap)
      : rows(row_count),
        columns(column_count),
        stride(column_count + 2 * gap),
        buffer(at((rows + 1) * stride)) {
    buffer.fill_bytes(0xFF);
  }
  std::vector<Element> finished() const {
    const std::vector<Element> all = buffer.download();
    std::vector<Element> values;
    std::array<unsigned char, sizeof(Element)> poison;
    poison.fill(0xFF);
    for (std::int64_t i = 0; i < std::ssize(all); ++i) {
      if (i / stride < rows && i % stride < columns)
        values.push_back(all[at(i)]);
      else
        EXPECT_EQ(std::memcmp(reinterpret_cast<const char*>(&all[at(i)]), poison.data(), sizeof(Element)), 0)
            << "written outside, element " << i;
    }
    return values;
  }

  std::int32_t rows, columns;
  std::int64_t stride;
  DeviceBuffer<Element> buffer;
};

/// Factors of a norm and the same on the device.
struct EpilogueNorm {
  EpilogueNorm(Random& random, std::int32_t size, bool with_beta) {
    std::uniform_real_distribution<float> around(0.5F, 1.5F);
    for (std::int32_t i = 0; i < size; ++i) {
      alpha.push_back(around(random));
      gamma.push_back(around(random));
      if (with_beta) beta.push_back(around(random) - 1);
    }
    for (const auto* values : {&alpha, &gamma, &beta}) device.emplace_back(*values);
    view = {device[0].data(), device[1].data(), device[2].data(), -0.9F, 1.1F};
  }
  double apply(std::int64_t n, double x) const {
    const double t = alpha[at(n)] * x + (beta.empty() ? 0 : beta[at(n)]);
    return gamma[at(n)] * std::clamp(t, -0.9, 1.1);
  }

  std::vector<float> alpha, gamma, beta;
  std::vector<DeviceBuffer<float>> device;
  DyhtView view;
};

inline Bits multiply(const Product& product, std::int32_t first_row, std::int32_t rows) {
  const Output<std::uint16_t> out(rows, product.weight.rows, 1);
  run_linear(product.plan, product.rows_from(first_row), rows,
             StoreBf16{.out = out.buffer.data(), .stride = out.stride}, nullptr);
  return out.finished();
}

}  // namespace asynct::cuda
