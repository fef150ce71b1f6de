#include "asynct/ops/feed_forward/feed_forward.h"

#include <gtest/gtest.h>

#include <array>

#include "asynct/base/error.h"
#include "asynct/ops/feed_forward/reference.h"
#include "asynct/ops/testing/testing.h"

namespace asynct {
namespace {

using namespace asynct::testing;

constexpr std::array kActivations{Activation::relu, Activation::silu};
constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f16};
constexpr std::array kPrecisions{Precision::fp32, Precision::bf16};
constexpr std::array kThreads{1, 2, 3, 7};

struct Layer {
  Tensor gate;
  Tensor up;
  Tensor down;
  FeedForwardWeights weights() const { return {gate.view(), up.view(), down.view()}; }
};

/// `shift` moves the gates of inputs near 1: about a third of the neurons is active at -0.4 / sqrt(d).
Layer random_layer(Random& random, DType dtype, std::int64_t d, std::int64_t neurons) {
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
  return {random_tensor(random, dtype, {neurons, d}, scale),
          random_tensor(random, dtype, {neurons, d}, scale),
          random_tensor(random, dtype, {d, neurons}, scale)};
}

std::string setting(Isa isa, DType dtype, Precision precision, Activation activation) {
  return cat(name(isa), " ", name(dtype), precision == Precision::bf16 ? " in bf16, " : ", ",
             activation == Activation::relu ? "relu" : "silu");
}

TEST(FeedForward, AgreesWithTheReference) {
  struct Case {
    std::int64_t rows, d, neurons, gap;
  };
  // One neuron, one column, partial groups and chunks, more columns than registers hold.
  const Case cases[] = {{1, 1, 1, 0},    {1, 64, 96, 0},  {3, 33, 17, 2},   {5, 300, 515, 1},
                        {9, 96, 130, 0}, {40, 31, 70, 5}, {130, 48, 33, 3}, {1, 520, 260, 0}};
  for (const Case& c : cases)
    for (const DType dtype : kDTypes)
      for (const Precision precision : kPrecisions)
        for (const Activation activation : kActivations) {
          Random random(7);
          const Layer layer = random_layer(random, dtype, c.d, c.neurons);
          GuardedMatrix x(c.rows, c.d, c.gap);
          x.fill(random, precision);
          const std::vector<double> expected =
              feed_forward::reference(x.matrix(), layer.weights(), activation, precision == Precision::bf16);
          for (const Isa isa : test_isas())
            for (const int threads : kThreads) {
              SCOPED_TRACE(cat(setting(isa, dtype, precision, activation), " ", threads, " threads, rows ",
                               c.rows, ", d ", c.d, ", neurons ", c.neurons));
              ThreadPool pool(threads);
              OpContext context(pool, isa, precision);
              GuardedMatrix y(c.rows, c.d, c.gap);
              RowCounter counter(c.rows);
              const FeedForward layer_op(context, layer.weights(), activation);
              layer_op.run(context, x.matrix(), y.matrix(), counter);
              // A sum near the middle of two bf16 values may round the other way than in double.
              EXPECT_LT(relative_error(y.matrix(), expected), precision == Precision::bf16 ? 2e-3 : 3e-6);
              EXPECT_TRUE(y.canaries_alive());
              EXPECT_TRUE(counter.each_once());
            }
        }
}

TEST(FeedForward, ARowDoesNotKnowItsBatch) {
  constexpr std::int64_t kRows = 120;
  constexpr std::int64_t kWidth = 552;  // two tiles of columns and a rest, its last group partial
  const auto check = [](Isa isa, DType dtype, Precision precision) {
    for (const Activation activation : kActivations) {
      Random random(8);
      const Layer layer = random_layer(random, dtype, kWidth, 523);
      GuardedMatrix x(kRows, kWidth, 5);
      x.fill(random, precision);
      ThreadPool one(1);
      OpContext alone(one, isa, precision);
      const FeedForward layer_op(alone, layer.weights(), activation);
      GuardedMatrix expected(kRows, kWidth, 0);
      for (std::int64_t r = 0; r < kRows; ++r)
        layer_op.run(alone, x.matrix().slice_rows(r, 1), expected.matrix().slice_rows(r, 1));
      for (const int threads : kThreads) {
        ThreadPool pool(threads);
        OpContext context(pool, isa, precision);
        for (const std::int64_t rows : {1, 2, 3, 5, 8, 17, 40, 64, 120}) {
          const std::int64_t begin = (kRows - rows) / 2;
          GuardedMatrix y(rows, kWidth, 3);
          layer_op.run(context, x.matrix().slice_rows(begin, rows), y.matrix());
          EXPECT_TRUE(same_bits(y.matrix(), expected.matrix().slice_rows(begin, rows)))
              << setting(isa, dtype, precision, activation) << ", " << rows << " rows, " << threads
              << " threads";
        }
      }
    }
  };
  for (const Isa isa : test_isas()) {
    for (const DType dtype : kDTypes) check(isa, dtype, Precision::fp32);
    check(isa, DType::bf16, Precision::bf16);  // a product of its own where there are tiles
  }
}

// x = 1 everywhere and constant gate weights: all neurons are active, or none, or exactly the even ones.
TEST(FeedForward, CountsActiveNeurons) {
  constexpr std::int64_t kWidth = 40;
  constexpr std::int64_t kNeurons = 300;
  Random random(9);
  for (const Isa isa : test_isas())
    for (const std::int64_t rows : {1, 70}) {
      for (const int active_of_two : {0, 1, 2}) {
        Layer layer = random_layer(random, DType::bf16, kWidth, kNeurons);
        for (std::int64_t i = 0; i < kNeurons * kWidth; ++i)
          layer.gate.values<Bf16>()[static_cast<std::size_t>(i)] =
              to_bf16(i / kWidth % 2 < active_of_two ? 0.5F : -0.5F);
        GuardedMatrix x(rows, kWidth, 0);
        for (std::int64_t r = 0; r < rows; ++r) std::fill_n(x.matrix().row(r), kWidth, 1.0F);
        ThreadPool pool(2);
        OpContext context(pool, isa, Precision::fp32);
        GuardedMatrix y(rows, kWidth, 0);
        const FeedForward layer_op(context, layer.weights(), Activation::relu);
        layer_op.run(context, x.matrix(), y.matrix());
        EXPECT_EQ(layer_op.counts().neurons, rows * kNeurons);
        EXPECT_EQ(layer_op.counts().active, rows * kNeurons * active_of_two / 2);
        if (active_of_two == 0)
          for (std::int64_t c = 0; c < kWidth; ++c) EXPECT_EQ(y.matrix().row(rows - 1)[c], 0.0F);
        else
          EXPECT_LT(relative_error(y.matrix(), feed_forward::reference(x.matrix(), layer.weights(),
                                                                       Activation::relu, false)),
                    3e-6);
      }
    }
}

TEST(FeedForward, NanGivesNanInItsRowOnly) {
  constexpr std::int64_t kWidth = 35;
  for (const Isa isa : test_isas())
    for (const Activation activation : kActivations)
      for (const std::int64_t rows : {4, 80}) {
        Random random(10);
        const Layer layer = random_layer(random, DType::bf16, kWidth, 65);
        GuardedMatrix x(rows, kWidth, 0);
        x.fill(random);
        x.matrix().row(2)[34] = std::numeric_limits<float>::quiet_NaN();
        ThreadPool pool(2);
        OpContext context(pool, isa, Precision::bf16);
        GuardedMatrix y(rows, kWidth, 0);
        FeedForward(context, layer.weights(), activation).run(context, x.matrix(), y.matrix());
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < kWidth; ++c) EXPECT_EQ(std::isnan(y.matrix().row(r)[c]), r == 2);
      }
}

// An inactive neuron is not read: NaN in its up and down rows must not show.
TEST(FeedForward, DoesNotReadInactiveNeurons) {
  constexpr std::int64_t kWidth = 64;
  Random random(11);
  Layer layer = random_layer(random, DType::f32, kWidth, 50);
  for (std::int64_t f = 0; f < 50; f += 2)
    for (std::int64_t k = 0; k < kWidth; ++k) {
      layer.gate.values<float>()[static_cast<std::size_t>(f * kWidth + k)] = -1;
      layer.up.values<float>()[static_cast<std::size_t>(f * kWidth + k)] = NAN;
      layer.down.values<float>()[static_cast<std::size_t>(k * 50 + f)] = NAN;
    }
  for (const Isa isa : test_isas()) {
    ThreadPool pool(2);
    OpContext context(pool, isa, Precision::fp32);
    GuardedMatrix x(3, kWidth, 0);
    for (std::int64_t r = 0; r < 3; ++r) std::fill_n(x.matrix().row(r), kWidth, 1.0F);
    GuardedMatrix y(3, kWidth, 0);
    FeedForward(context, layer.weights(), Activation::relu).run(context, x.matrix(), y.matrix());
    for (std::int64_t c = 0; c < kWidth; ++c) EXPECT_FALSE(std::isnan(y.matrix().row(1)[c]));
  }
}

TEST(FeedForward, RefusesShapesThatDoNotFit) {
  Random random(12);
  ThreadPool pool(1);
  OpContext context(pool, Isa::scalar, Precision::fp32);
  const Tensor a = random_tensor(random, DType::f32, {6, 4});
  const Tensor b = random_tensor(random, DType::f32, {4, 6});
  for (const Activation activation : kActivations) {
    EXPECT_NO_THROW(FeedForward(context, {a.view(), a.view(), b.view()}, activation));
    EXPECT_THROW(FeedForward(context, {a.view(), a.view(), a.view()}, activation), Error);
    EXPECT_THROW(FeedForward(context, {a.view(), b.view(), b.view()}, activation), Error);
  }
}

}  // namespace
}  // namespace asynct
