// The tile product over emulated tiles: layouts, edges and the order of sums, on machines without tiles.
// linear_test.cc runs the processor's.

#include "asynct/ops/linear/amx_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "asynct/base/strings.h"
#include "asynct/ops/linear/product_testing.h"
#include "asynct/ops/linear/reference.h"

namespace asynct {
namespace {

using namespace asynct::testing;
using linear::Tile;

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
  for (const Case& c : kCases) {
    SCOPED_TRACE(cat("rows ", c.rows, ", inputs ", c.inputs, ", outputs ", c.outputs));
    Random random(1);
    GuardedMatrix x(c.rows, c.inputs, c.gap);
    x.fill(random, Precision::bf16);
    const Tensor weight = random_tensor(random, DType::bf16, {c.outputs, c.inputs});
    const GuardedMatrix sums = expect_sums(kEmulated, x.matrix(), weight, c.gap, chain);
    const TensorView parts[] = {weight.view()};
    EXPECT_LT(relative_error(sums.matrix(), linear::reference(x.matrix(), parts)), 2e-6);
  }
}

// Every height of tiles, every way the last ones may overlap; two blocks of inputs.
TEST(AmxProduct, ARowDoesNotKnowItsBatch) { expect_rows_do_not_know_their_batch(kEmulated, 130, 290); }

TEST(AmxProduct, NanAndInfinityStayInTheirRow) { expect_bad_values_stay_in_their_row(kEmulated, 70); }

TEST(AmxProduct, RoundsWhatIsNotBf16) { expect_inputs_are_rounded(kEmulated, 40); }

}  // namespace
}  // namespace asynct
