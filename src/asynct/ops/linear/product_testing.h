#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "asynct/ops/linear/multiply.h"
#include "asynct/ops/testing/testing.h"

// What products of bf16 rows by bf16 weights promise whatever multiplies them. `Kernels` is what a Multiplier
// is made from: a KernelTable of dot products, or AmxKernels.
namespace asynct::testing {

/// The instructions flush subnormal inputs and results, whatever MXCSR says.
inline float flush(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0 : value; }

inline linear::PackedMatrix pack(const Tensor& weight) {
  ThreadPool pool(1);
  Arena memory;
  const TensorView parts[] = {weight.view()};
  return {pool, parts, memory};
}

/// y = x * weight in pieces of `panels` panels.
template <class Kernels>
void multiply(const Kernels& kernels, const linear::PackedMatrix& weight, ConstMatrix x, std::int64_t panels,
              Matrix y) {
  const linear::Multiplier multiplier(kernels, weight);
  const Buffer scratch(multiplier.scratch_bytes(x.rows, x.cols));
  std::memset(scratch.data(), 0xff, scratch.size());
  const linear::PackedRows rows = multiplier.pack(x, scratch.data());
  for (std::int64_t p = 0; p < weight.panels(); p += panels) {
    const std::int64_t column = p * linear::kPanel;
    multiplier.multiply(rows, p,
                        y.slice_cols(column, std::min(panels * linear::kPanel, weight.outputs() - column)));
  }
}

/// Each result is chain(row of x, row of the weight, inputs), bit for bit, in pieces of any size; y has `gap`
/// floats between its rows. Returns those results.
template <class Kernels, class Chain>
GuardedMatrix expect_sums(const Kernels& kernels, ConstMatrix x, const Tensor& weight, std::int64_t gap,
                          Chain chain) {
  const linear::PackedMatrix packed = pack(weight);
  std::vector<float> plain(static_cast<std::size_t>(weight.view().shape.elements()));
  copy_to_float(weight.view(), plain.data());
  GuardedMatrix expected(x.rows, packed.outputs(), 0);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t n = 0; n < packed.outputs(); ++n)
      expected.matrix().row(r)[n] = chain(x.row(r), plain.data() + n * x.cols, x.cols);
  for (const std::int64_t panels : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, packed.panels()}) {
    GuardedMatrix y(x.rows, packed.outputs(), gap);
    multiply(kernels, packed, x, panels, y.matrix());
    EXPECT_TRUE(same_bits(y.matrix(), expected.matrix())) << panels << " panels";
    EXPECT_TRUE(y.canaries_alive());
  }
  return expected;
}

/// The last 1, 2, ... `rows` rows of a batch have the bits that each has alone.
template <class Kernels>
void expect_rows_do_not_know_their_batch(const Kernels& kernels, std::int64_t rows, std::int64_t inputs) {
  constexpr std::int64_t kOutputs = 35;
  Random random(3);
  GuardedMatrix x(rows, inputs, 0);
  x.fill(random, Precision::bf16);
  const linear::PackedMatrix packed = pack(random_tensor(random, DType::bf16, {kOutputs, inputs}));
  GuardedMatrix expected(rows, kOutputs, 0);
  for (std::int64_t r = 0; r < rows; ++r)
    multiply(kernels, packed, x.matrix().slice_rows(r, 1), 4, expected.matrix().slice_rows(r, 1));
  for (std::int64_t count = 1; count <= rows; ++count) {
    GuardedMatrix y(count, kOutputs, 2);
    multiply(kernels, packed, x.matrix().slice_rows(rows - count, count), 4, y.matrix());
    EXPECT_TRUE(same_bits(y.matrix(), expected.matrix().slice_rows(rows - count, count))) << count << " rows";
    EXPECT_TRUE(y.canaries_alive());
  }
}

/// A NaN or an infinity in the last input of a row spoils that row and no other.
template <class Kernels>
void expect_bad_values_stay_in_their_row(const Kernels& kernels, std::int64_t inputs) {
  Random random(4);
  const linear::PackedMatrix packed = pack(random_tensor(random, DType::bf16, {33, inputs}));
  for (const std::int64_t rows : {7, 40})
    for (const float bad : {std::bit_cast<float>(0x7f800001U), -std::numeric_limits<float>::infinity()}) {
      GuardedMatrix x(rows, inputs, 0);
      x.fill(random, Precision::bf16);
      x.matrix().row(5)[inputs - 1] = bad;  // a NaN that truncation would make an infinity
      GuardedMatrix y(rows, 33, 0);
      multiply(kernels, packed, x.matrix(), 3, y.matrix());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t n = 0; n < 33; ++n) {
          EXPECT_EQ(std::isfinite(y.matrix().row(r)[n]), r != 5);
          EXPECT_EQ(std::isnan(y.matrix().row(r)[n]), r == 5 && std::isnan(bad));
        }
    }
}

/// Inputs that are not bf16 count as the nearest that are.
template <class Kernels>
void expect_inputs_are_rounded(const Kernels& kernels, std::int64_t inputs) {
  Random random(5);
  GuardedMatrix x(3, inputs, 0);
  x.fill(random);
  GuardedMatrix rounded(3, inputs, 0);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t k = 0; k < inputs; ++k)
      rounded.matrix().row(r)[k] = round_to_bf16(x.matrix().row(r)[k]);
  const linear::PackedMatrix packed = pack(random_tensor(random, DType::bf16, {5, inputs}));
  GuardedMatrix y(3, 5, 0);
  GuardedMatrix expected(3, 5, 0);
  multiply(kernels, packed, x.matrix(), 1, y.matrix());
  multiply(kernels, packed, rounded.matrix(), 1, expected.matrix());
  EXPECT_TRUE(same_bits(y.matrix(), expected.matrix()));
}

}  // namespace asynct::testing
