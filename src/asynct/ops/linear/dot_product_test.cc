// Products by dot products of bf16 pairs: the processor's kernels where it has any, and the same tile kernels
// over emulated vectors on every machine.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "asynct/base/strings.h"
#include "asynct/ops/linear/linear.h"
#include "asynct/ops/linear/product_testing.h"

namespace asynct {
namespace {

using testing::flush;

// The contract of one pair: products of bf16 values are exact, so each step rounds once.
float dot_pair(const float (&a)[2], const float (&b)[2], float sum) {
  for (const int odd : {1, 0}) sum = flush(std::fma(flush(a[odd]), flush(b[odd]), flush(sum)));
  return sum;
}

struct Vec {
  static constexpr int kLanes = 16;
  std::uint32_t lanes[kLanes];

  static Vec zero() { return {}; }
  static Vec load(const float* p) {
    Vec vec;
    std::memcpy(vec.lanes, p, sizeof vec.lanes);
    return vec;
  }
  static Vec broadcast(const float* p) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, p, sizeof bits);
    Vec vec;
    for (std::uint32_t& lane : vec.lanes) lane = bits;
    return vec;
  }
  void store(float* p) const { std::memcpy(p, lanes, sizeof lanes); }
  static Vec fma(const Vec& a, const Vec& b, Vec sum) {
    for (int i = 0; i < kLanes; ++i) {
      const float x[2] = {std::bit_cast<float>(a.lanes[i] << 16),
                          std::bit_cast<float>(a.lanes[i] & 0xffff0000U)};
      const float y[2] = {std::bit_cast<float>(b.lanes[i] << 16),
                          std::bit_cast<float>(b.lanes[i] & 0xffff0000U)};
      sum.lanes[i] = std::bit_cast<std::uint32_t>(dot_pair(x, y, std::bit_cast<float>(sum.lanes[i])));
    }
    return sum;
  }
};

inline void prefetch(const void* /*p*/) {}

}  // namespace
}  // namespace asynct

#include "asynct/ops/linear/dot_kernels.h"

namespace asynct {
namespace {

using namespace asynct::testing;
using linear::KernelTable;

void pack_emulated(const float* x, std::int64_t inputs, float* pairs) {
  for (std::int64_t i = 0; i < (inputs + 3) / 4 * 4; i += 2) {
    const std::uint32_t low = i < inputs ? to_bf16(x[i]).bits : 0;
    const std::uint32_t high = i + 1 < inputs ? to_bf16(x[i + 1]).bits : 0;
    const std::uint32_t pair = low | high << 16;
    std::memcpy(pairs + i / 2, &pair, sizeof pair);
  }
}

struct Limits {
  static constexpr int kRows = 3;
  static constexpr int kTilePanels = 2;
  static constexpr int panels(int rows) { return rows == 1 ? 4 : 2; }
};
constexpr KernelTable kEmulated = linear::make_dot_table<Limits>(pack_emulated);

template <class Check>
void for_each_table(Check check) {
  {
    SCOPED_TRACE("emulated");
    check(kEmulated);
  }
  if (!cpu_runs(Isa::avx512bf16)) return;
  SCOPED_TRACE("AVX512_BF16");
  check(linear::kAvx512Bf16Kernels);
}

// The sum of the contract, from the plain matrices.
float chain(const float* x, const float* weight, std::int64_t inputs) {
  float sum = 0;
  for (std::int64_t k = 0; k < inputs; k += 2) {
    const bool both = k + 1 < inputs;
    sum = dot_pair({x[k], both ? x[k + 1] : 0}, {weight[k], both ? weight[k + 1] : 0}, sum);
  }
  return sum;
}

struct Case {
  std::int64_t rows, inputs, outputs, gap;
};
// Rows of one tile, whole and uneven tiles; every number of panels; odd inputs; one to three blocks of them.
constexpr Case kCases[] = {{1, 1, 1, 0},     {1, 32, 64, 0},   {1, 1030, 150, 3}, {2, 100, 129, 5},
                           {3, 7, 17, 1},    {7, 33, 33, 1},   {6, 515, 65, 2},   {13, 512, 48, 0},
                           {14, 514, 40, 0}, {15, 512, 32, 7}, {29, 515, 31, 4},  {57, 258, 97, 16},
                           {64, 96, 130, 0}, {97, 1060, 20, 1}};

TEST(DotProduct, SumsInTheOrderOfTheContract) {
  for_each_table([](const KernelTable& table) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(cat("rows ", c.rows, ", inputs ", c.inputs, ", outputs ", c.outputs));
      Random random(1);
      GuardedMatrix x(c.rows, c.inputs, c.gap);
      x.fill(random, Precision::bf16);
      expect_sums(table, x.matrix(), random_tensor(random, DType::bf16, {c.outputs, c.inputs}), c.gap, chain);
    }
  });
}

TEST(DotProduct, FlushesSubnormals) {
  for_each_table([](const KernelTable& table) {
    Random random(2);
    // Products from far below the smallest normal float to a little above it; some inputs are subnormal.
    GuardedMatrix x(20, 70, 1);
    x.fill(random, Precision::bf16, 0x1p-63F);
    for (std::int64_t r = 0; r < 20; ++r) x.matrix().row(r)[r] = 0x1p-130F;
    Tensor weight = random_tensor(random, DType::bf16, {40, 70}, 0x1p-63F);
    for (std::size_t n = 0; n < 40; ++n) weight.values<Bf16>()[n * 70 + 1] = to_bf16(0x1p-128F);
    expect_sums(table, x.matrix(), weight, 0, chain);
    for (std::int64_t r = 0; r < 20; ++r)  // inputs that are subnormal times large weights
      for (std::int64_t k = 0; k < 70; ++k) x.matrix().row(r)[k] = 0x1p-127F;
    for (Bf16& value : weight.values<Bf16>()) value = to_bf16(0x1p100F);
    expect_sums(table, x.matrix(), weight, 0, chain);
  });
}

TEST(DotProduct, ARowDoesNotKnowItsBatch) {  // 547 inputs: two blocks
  for_each_table([](const KernelTable& table) { expect_rows_do_not_know_their_batch(table, 60, 547); });
}

TEST(DotProduct, NanAndInfinityStayInTheirRow) {
  for_each_table([](const KernelTable& table) { expect_bad_values_stay_in_their_row(table, 71); });
}

TEST(DotProduct, RoundsWhatIsNotBf16) {
  for_each_table([](const KernelTable& table) { expect_inputs_are_rounded(table, 45); });
}

// Nothing but bf16 weights in bf16 precision may go through them.
TEST(DotProduct, OtherProductsAreThoseOfAvx512) {
  if (!cpu_runs(Isa::avx512bf16)) GTEST_SKIP() << "no AVX512_BF16 here";
  ThreadPool pool(1);
  const auto product = [&](Isa isa, DType dtype, Precision precision) {
    Random random(6);
    OpContext context(pool, isa, precision);
    GuardedMatrix x(9, 300, 0);
    x.fill(random, precision);
    const Tensor weight = random_tensor(random, dtype, {40, 300});
    const TensorView parts[] = {weight.view()};
    GuardedMatrix y(9, 40, 0);
    Linear(context, parts).run(context, x.matrix(), y.matrix());
    return y;
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const bool dots = precision == Precision::bf16 && dtype == DType::bf16;
      EXPECT_EQ(same_bits(product(Isa::avx512bf16, dtype, precision).matrix(),
                          product(Isa::avx512, dtype, precision).matrix()),
                !dots)
          << name(dtype);
    }
}

}  // namespace
}  // namespace asynct
