#include "asynct/ops/linear/linear.h"

#include <gtest/gtest.h>

#include <array>

#include "asynct/base/error.h"
#include "asynct/ops/linear/reference.h"
#include "asynct/ops/testing/testing.h"

namespace asynct {
namespace {

using namespace asynct::testing;

struct Case {
  std::int64_t rows;
  std::int64_t inputs;
  std::int64_t outputs;
  std::int64_t gap = 0;  // between rows of x and y
};

// Below, at and above the sizes of tiles, blocks and panels; odd inputs; many blocks of inputs.
const Case kCases[] = {{1, 1, 1},         {1, 64, 64},       {1, 257, 300, 3},  {2, 100, 129, 5},
                       {3, 7, 17, 1},     {5, 512, 40},      {7, 33, 200, 9},   {13, 256, 48},
                       {14, 300, 65, 2},  {15, 300, 65, 2},  {29, 515, 31, 4},  {40, 96, 130, 7},
                       {57, 258, 97, 16}, {125, 64, 50, 11}, {230, 301, 70, 0}, {1, 1030, 260, 0}};
constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f16};
constexpr std::array kPrecisions{Precision::fp32, Precision::bf16};
constexpr std::array kThreads{1, 2, 3, 7};

// Runs every combination of ISA, dtype, precision and threads through check(context, dtype).
template <class Check>
void for_each_setting(Check check) {
  for (const Isa isa : test_isas())
    for (const DType dtype : kDTypes)
      for (const Precision precision : kPrecisions)
        for (const int threads : kThreads) {
          SCOPED_TRACE(cat(name(isa), " ", name(dtype), precision == Precision::bf16 ? " in bf16, " : ", ",
                           threads, " threads"));
          ThreadPool pool(threads);
          OpContext context(pool, isa, precision);
          check(context, dtype);
        }
}

TEST(Linear, AgreesWithTheReference) {
  for_each_setting([](OpContext& context, DType dtype) {
    Random random(1);
    for (const Case& c : kCases) {
      SCOPED_TRACE(cat("rows ", c.rows, ", inputs ", c.inputs, ", outputs ", c.outputs));
      GuardedMatrix x(c.rows, c.inputs, c.gap);
      x.fill(random, context.precision());
      const Tensor weight = random_tensor(random, dtype, {c.outputs, c.inputs});
      const TensorView parts[] = {weight.view()};
      GuardedMatrix y(c.rows, c.outputs, c.gap);
      RowCounter counter(c.rows);
      const Linear linear(context, parts);
      linear.run(context, x.matrix(), y.matrix(), counter);
      EXPECT_LT(relative_error(y.matrix(), linear::reference(x.matrix(), parts)), 2e-6);
      EXPECT_TRUE(y.canaries_alive());
      EXPECT_TRUE(counter.each_once());
    }
  });
}

TEST(Linear, StacksParts) {
  Random random(2);
  ThreadPool pool(2);
  for (const Isa isa : test_isas()) {
    OpContext context(pool, isa, Precision::fp32);
    const Tensor q = random_tensor(random, DType::bf16, {37, 50});
    const Tensor k = random_tensor(random, DType::bf16, {3, 50});
    const Tensor v = random_tensor(random, DType::bf16, {20, 50});
    const TensorView parts[] = {q.view(), k.view(), v.view()};
    GuardedMatrix x(4, 50, 0);
    x.fill(random);
    GuardedMatrix y(4, 60, 0);
    const Linear linear(context, parts);
    EXPECT_EQ(linear.outputs(), 60);
    linear.run(context, x.matrix(), y.matrix());
    EXPECT_LT(relative_error(y.matrix(), linear::reference(x.matrix(), parts)), 2e-6);
  }
}

// The reduction-order contract: a row's result has the same bits alone, in any batch, at any place in it, by
// any number of threads.
TEST(Linear, ARowDoesNotKnowItsBatch) {
  constexpr std::int64_t kRows = 130;
  for (const Isa isa : test_isas())
    for (const DType dtype : kDTypes)
      for (const Precision precision : kPrecisions) {
        Random random(3);
        GuardedMatrix x(kRows, 523, 5);
        x.fill(random, precision);
        const Tensor weight = random_tensor(random, dtype, {171, 523});
        const TensorView parts[] = {weight.view()};
        ThreadPool one(1);
        OpContext alone(one, isa, precision);
        const Linear linear(alone, parts);
        GuardedMatrix expected(kRows, 171, 0);
        for (std::int64_t r = 0; r < kRows; ++r)
          linear.run(alone, x.matrix().slice_rows(r, 1), expected.matrix().slice_rows(r, 1));
        for (const int threads : kThreads) {
          ThreadPool pool(threads);
          OpContext context(pool, isa, precision);
          for (const std::int64_t rows : {2, 3, 4, 5, 6, 7, 11, 14, 16, 28, 41, 64, 113, 130}) {
            const std::int64_t begin = (kRows - rows) / 2;
            GuardedMatrix y(rows, 171, 3);
            linear.run(context, x.matrix().slice_rows(begin, rows), y.matrix());
            EXPECT_TRUE(same_bits(y.matrix(), expected.matrix().slice_rows(begin, rows)))
                << name(isa) << " " << name(dtype) << " " << rows << " rows, " << threads << " threads";
          }
        }
      }
}

TEST(Linear, NanStaysInItsRow) {
  for_each_setting([](OpContext& context, DType dtype) {
    Random random(4);
    const Tensor weight = random_tensor(random, dtype, {33, 19});
    const TensorView parts[] = {weight.view()};
    GuardedMatrix x(16, 19, 0);
    x.fill(random, context.precision());
    x.matrix().row(5)[18] = std::numeric_limits<float>::quiet_NaN();
    GuardedMatrix y(16, 33, 0);
    Linear(context, parts).run(context, x.matrix(), y.matrix());
    for (std::int64_t r = 0; r < 16; ++r)
      for (std::int64_t c = 0; c < 33; ++c) EXPECT_EQ(std::isnan(y.matrix().row(r)[c]), r == 5);
  });
}

TEST(Linear, NoRowsIsNothing) {
  Random random(5);
  ThreadPool pool(2);
  OpContext context(pool, Isa::scalar, Precision::fp32);
  const Tensor weight = random_tensor(random, DType::f32, {33, 19});
  const TensorView parts[] = {weight.view()};
  Linear(context, parts).run(context, {nullptr, 0, 19}, {nullptr, 0, 33});
}

TEST(Linear, RefusesWeightsThatDoNotStack) {
  Random random(6);
  ThreadPool pool(1);
  OpContext context(pool, Isa::scalar, Precision::fp32);
  const Tensor a = random_tensor(random, DType::f32, {3, 19});
  const Tensor b = random_tensor(random, DType::bf16, {3, 19});
  const Tensor c = random_tensor(random, DType::f32, {3, 18});
  const Tensor d(DType::i32, {3, 19});
  const auto construct = [&](std::initializer_list<TensorView> parts) {
    return Linear(context, {parts.begin(), parts.size()});
  };
  EXPECT_NO_THROW(construct({a.view(), a.view()}));
  EXPECT_THROW(construct({a.view(), b.view()}), Error);
  EXPECT_THROW(construct({a.view(), c.view()}), Error);
  EXPECT_THROW(construct({d.view()}), Error);
}

}  // namespace
}  // namespace asynct
