// The tile product over emulated tiles: layouts, edges and the order of sums, on machines without tiles.
// linear_test.cc runs the processor's.

#include "asynct/ops/linear/amx_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "asynct/base/strings.h"
#include "asynct/ops/linear/multiply.h"
#include "asynct/ops/linear/reference.h"
#include "asynct/ops/testing/testing.h"

namespace asynct {
namespace {

using namespace asynct::testing;
using linear::kPanel;
using linear::Multiplier;
using linear::PackedMatrix;
using linear::PackedRows;
using linear::Tile;

// TDPBF16PS flushes subnormal inputs and results, whatever MXCSR says.
float flush(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0 : value; }
float widen(std::uint16_t bits) { return flush(to_float(Bf16{bits})); }

// The instructions as Intel documents them. Tiles hold NaN until something is loaded.
class EmulatedTiles {
 public:
  EmulatedTiles(int height, int row_tiles) {
    EXPECT_TRUE(height >= 1 && height <= 16 && row_tiles >= 1 && row_tiles <= 2);
    for (int t = 0; t < 8; ++t) rows_[t] = t < 4 + row_tiles ? height : 16;
    std::memset(tiles_, 0xff, sizeof tiles_);
  }

  template <int T>
  void load(Tile<T>, const void* memory, std::int64_t stride) {
    for (int r = 0; r < rows_[T]; ++r)
      std::memcpy(tiles_[T][r], static_cast<const std::byte*>(memory) + r * stride, 64);
  }
  template <int T>
  void store(Tile<T>, void* memory, std::int64_t stride) {
    for (int r = 0; r < rows_[T]; ++r)
      std::memcpy(static_cast<std::byte*>(memory) + r * stride, tiles_[T][r], 64);
  }
  template <int T>
  void zero(Tile<T>) {
    std::memset(tiles_[T], 0, sizeof tiles_[T]);
  }
  template <int C, int A, int B>
  void dot(Tile<C>, Tile<A>, Tile<B>) {
    if (rows_[C] != rows_[A] || rows_[B] != 16) ADD_FAILURE() << "#UD: tiles " << C << ", " << A << ", " << B;
    for (int m = 0; m < rows_[C]; ++m) {
      std::uint16_t a[32];
      float c[16];
      std::memcpy(a, tiles_[A][m], sizeof a);
      std::memcpy(c, tiles_[C][m], sizeof c);
      float sums[16][2] = {};
      for (int k = 0; k < 16; ++k) {
        std::uint16_t b[16][2];
        std::memcpy(b, tiles_[B][k], sizeof b);
        for (int n = 0; n < 16; ++n)
          for (int odd = 0; odd < 2; ++odd)
            sums[n][odd] = flush(std::fma(widen(a[2 * k + odd]), widen(b[n][odd]), sums[n][odd]));
      }
      for (int n = 0; n < 16; ++n) c[n] = flush(c[n] + flush(sums[n][0] + sums[n][1]));
      std::memcpy(tiles_[C][m], c, sizeof c);
    }
  }

 private:
  int rows_[8];
  std::byte tiles_[8][16][64];
};

constexpr linear::AmxKernels kEmulated = linear::make_amx_kernels<EmulatedTiles>();

// y = x * weight in pieces of `panels` panels.
void multiply(const PackedMatrix& weight, ConstMatrix x, std::int64_t panels, Matrix y) {
  const Multiplier multiplier(kEmulated, weight);
  const Buffer scratch(multiplier.scratch_bytes(x.rows, x.cols));
  std::memset(scratch.data(), 0xff, scratch.size());
  const PackedRows rows = multiplier.pack(x, scratch.data());
  for (std::int64_t p = 0; p < weight.panels(); p += panels)
    multiplier.multiply(rows, p,
                        y.slice_cols(p * kPanel, std::min(panels * kPanel, weight.outputs() - p * kPanel)));
}

// The sum of the contract, from the plain matrices.
float chain(const float* x, const float* weight, std::int64_t inputs) {
  float sum = 0;
  for (std::int64_t begin = 0; begin < inputs; begin += 32) {
    float even = 0;
    float odd = 0;
    for (std::int64_t k = begin; k < std::min(begin + 32, inputs); ++k)
      (k % 2 == 0 ? even : odd) += x[k] * weight[k];  // bf16 products are exact
    sum += even + odd;
  }
  return sum;
}

struct Case {
  std::int64_t rows, inputs, outputs, gap;
};
// One row; partial, whole and paired tiles; every number of panels left over; one to five blocks of inputs.
constexpr Case kCases[] = {{1, 1, 1, 0},     {1, 32, 64, 0},    {1, 1030, 50, 3},  {2, 100, 129, 5},
                           {7, 33, 33, 1},   {15, 64, 16, 0},   {16, 300, 65, 2},  {17, 256, 48, 0},
                           {31, 257, 40, 0}, {32, 512, 32, 7},  {33, 515, 31, 4},  {57, 258, 97, 16},
                           {64, 96, 130, 0}, {97, 1060, 20, 1}, {128, 768, 35, 0}, {130, 64, 17, 0}};

TEST(AmxProduct, SumsInTheOrderOfTheContract) {
  ThreadPool pool(1);
  for (const Case& c : kCases) {
    SCOPED_TRACE(cat("rows ", c.rows, ", inputs ", c.inputs, ", outputs ", c.outputs));
    Random random(1);
    GuardedMatrix x(c.rows, c.inputs, c.gap);
    x.fill(random, Precision::bf16);
    const Tensor weight = random_tensor(random, DType::bf16, {c.outputs, c.inputs});
    const TensorView parts[] = {weight.view()};
    Arena memory;
    const PackedMatrix packed(pool, parts, memory);
    std::vector<float> plain(static_cast<std::size_t>(c.outputs * c.inputs));
    copy_to_float(weight.view(), plain.data());
    GuardedMatrix expected(c.rows, c.outputs, 0);
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t n = 0; n < c.outputs; ++n)
        expected.matrix().row(r)[n] = chain(x.matrix().row(r), plain.data() + n * c.inputs, c.inputs);
    for (const std::int64_t panels : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, packed.panels()}) {
      GuardedMatrix y(c.rows, c.outputs, c.gap);
      multiply(packed, x.matrix(), panels, y.matrix());
      EXPECT_TRUE(same_bits(y.matrix(), expected.matrix())) << panels << " panels";
      EXPECT_TRUE(y.canaries_alive());
    }
    EXPECT_LT(relative_error(expected.matrix(), linear::reference(x.matrix(), parts)), 2e-6);
  }
}

// Every height of tiles, every way the last ones may overlap.
TEST(AmxProduct, ARowDoesNotKnowItsBatch) {
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kInputs = 290;  // two blocks
  constexpr std::int64_t kOutputs = 35;
  Random random(2);
  ThreadPool pool(1);
  GuardedMatrix x(kRows, kInputs, 0);
  x.fill(random, Precision::bf16);
  const Tensor weight = random_tensor(random, DType::bf16, {kOutputs, kInputs});
  const TensorView parts[] = {weight.view()};
  Arena memory;
  const PackedMatrix packed(pool, parts, memory);
  GuardedMatrix expected(kRows, kOutputs, 0);
  for (std::int64_t r = 0; r < kRows; ++r)
    multiply(packed, x.matrix().slice_rows(r, 1), 4, expected.matrix().slice_rows(r, 1));
  for (std::int64_t rows = 1; rows <= kRows; ++rows) {
    GuardedMatrix y(rows, kOutputs, 2);
    multiply(packed, x.matrix().slice_rows(kRows - rows, rows), 4, y.matrix());
    EXPECT_TRUE(same_bits(y.matrix(), expected.matrix().slice_rows(kRows - rows, rows))) << rows << " rows";
    EXPECT_TRUE(y.canaries_alive());
  }
}

TEST(AmxProduct, NanAndInfinityStayInTheirRow) {
  Random random(3);
  ThreadPool pool(1);
  const Tensor weight = random_tensor(random, DType::bf16, {33, 70});
  const TensorView parts[] = {weight.view()};
  Arena memory;
  const PackedMatrix packed(pool, parts, memory);
  for (const std::int64_t rows : {7, 40})
    for (const float bad : {std::bit_cast<float>(0x7f800001U), -std::numeric_limits<float>::infinity()}) {
      GuardedMatrix x(rows, 70, 0);
      x.fill(random, Precision::bf16);
      x.matrix().row(5)[69] = bad;  // a NaN that truncation would make an infinity
      GuardedMatrix y(rows, 33, 0);
      multiply(packed, x.matrix(), 3, y.matrix());
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t n = 0; n < 33; ++n) {
          EXPECT_EQ(std::isfinite(y.matrix().row(r)[n]), r != 5);
          EXPECT_EQ(std::isnan(y.matrix().row(r)[n]), r == 5 && std::isnan(bad));
        }
    }
}

TEST(AmxProduct, RoundsWhatIsNotBf16) {
  Random random(4);
  ThreadPool pool(1);
  const Tensor weight = random_tensor(random, DType::bf16, {5, 40});
  const TensorView parts[] = {weight.view()};
  Arena memory;
  const PackedMatrix packed(pool, parts, memory);
  GuardedMatrix x(3, 40, 0);
  x.fill(random);
  GuardedMatrix rounded(3, 40, 0);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t k = 0; k < 40; ++k) rounded.matrix().row(r)[k] = round_to_bf16(x.matrix().row(r)[k]);
  GuardedMatrix y(3, 5, 0);
  GuardedMatrix expected(3, 5, 0);
  multiply(packed, x.matrix(), 1, y.matrix());
  multiply(packed, rounded.matrix(), 1, expected.matrix());
  EXPECT_TRUE(same_bits(y.matrix(), expected.matrix()));
}

}  // namespace
}  // namespace asynct
