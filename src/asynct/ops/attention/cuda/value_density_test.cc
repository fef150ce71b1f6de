#include "asynct/ops/attention/cuda/value_density.h"

#include <gtest/gtest.h>

namespace asynct::cuda {
namespace {

constexpr std::int32_t kMultiprocessors = 132;
constexpr std::int32_t kUnits = 128;

/// A layer's counter as the kernel adds to it.
struct Counter {
  std::uint64_t count = 0;
  std::uint64_t step(std::uint64_t seen, double density) {
    const auto needed = static_cast<std::uint64_t>(density * static_cast<double>(seen));
    return count += (seen << 32) + needed;
  }
};

TEST(ValueDensity, begins_with_all_values) {
  const ValueDensity density;
  EXPECT_EQ(density.estimate(), 1);
  EXPECT_FALSE(density.skips(kUnits, kMultiprocessors));
}

TEST(ValueDensity, follows_what_was_counted) {
  ValueDensity density;
  Counter counter;
  for (int step = 0; step < 50; ++step) density.observe(counter.step(1000, 0.5));
  EXPECT_NEAR(density.estimate(), 0.5, 0.01);
  EXPECT_TRUE(density.skips(kUnits, kMultiprocessors));
  for (int step = 0; step < 50; ++step) density.observe(counter.step(1000, 1));
  EXPECT_NEAR(density.estimate(), 1, 0.01);
  EXPECT_FALSE(density.skips(kUnits, kMultiprocessors));
}

TEST(ValueDensity, takes_one_large_step_at_its_word) {
  ValueDensity density;
  Counter counter;
  density.observe(counter.step(1 << 20, 0.25));
  EXPECT_NEAR(density.estimate(), 0.25, 0.01);
  EXPECT_TRUE(density.skips(kUnits, kMultiprocessors));
}

TEST(ValueDensity, weighs_steps_by_their_keys) {
  ValueDensity density;
  Counter counter;
  density.observe(counter.step(1 << 20, 0.5));
  density.observe(counter.step(100, 1));
  EXPECT_NEAR(density.estimate(), 0.5, 0.01);
}

TEST(ValueDensity, does_not_change_its_mind_at_a_border) {
  for (const double border : {ValueDensity::kSkipBelow, ValueDensity::kAllAbove}) {
    ValueDensity density;
    Counter counter;
    int changes = 0;
    bool before = density.skips(kUnits, kMultiprocessors);
    for (int step = 0; step < 400; ++step) {
      density.observe(counter.step(1 << 20, border + (step / 20 % 2 == 0 ? -0.02 : 0.02)));
      changes += density.skips(kUnits, kMultiprocessors) != before;
      before = density.skips(kUnits, kMultiprocessors);
    }
    EXPECT_LE(changes, 1);
  }
}

TEST(ValueDensity, stays_when_nothing_was_counted_or_a_reading_was_left_out) {
  ValueDensity often, seldom;
  Counter counter;
  often.observe(counter.step(5000, 0.5));
  const double estimate = often.estimate();
  often.observe(counter.count);
  EXPECT_EQ(often.estimate(), estimate);
  counter.step(5000, 0.5);
  seldom.observe(counter.count);
  EXPECT_NEAR(seldom.estimate(), 0.5 + 0.5 * 0.9 * 4096 / (0.9 * 4096 + 10000), 1e-6);
}

TEST(ValueDensity, leaves_small_launches_alone) {
  ValueDensity density;
  Counter counter;
  density.observe(counter.step(1 << 20, 0.25));
  EXPECT_TRUE(density.skips(1000, kMultiprocessors));
  EXPECT_TRUE(density.skips(99, kMultiprocessors));
  EXPECT_FALSE(density.skips(64, kMultiprocessors));
}

TEST(ValueDensity, survives_the_counters_end) {
  ValueDensity density;
  Counter counter = {.count = 0xFFFFF000'FFFFFF00};
  density.observe(counter.count);  // of launches before this object's time
  for (int step = 0; step < 100; ++step) density.observe(counter.step(1 << 20, 0.25));
  EXPECT_NEAR(density.estimate(), 0.25, 0.01);
}

TEST(ValueDensity, knows_a_layer_that_needs_nothing) {
  ValueDensity density;
  Counter counter;
  for (int step = 0; step < 100; ++step) density.observe(counter.step(1000, 0));
  EXPECT_LT(density.estimate(), 0.01);
  EXPECT_TRUE(density.skips(kUnits, kMultiprocessors));
}

}  // namespace
}  // namespace asynct::cuda
