#include "asynct/ops/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "asynct/base/error.h"

namespace asynct {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> found = {Isa::scalar};
  if (cpu_features().avx2) found.push_back(Isa::avx2);
  if (cpu_features().avx512) found.push_back(Isa::avx512);
  return found;
}

TEST(Rope, RotatesHalvesByPositionTimesFrequency) {
  ThreadPool pool(1);
  constexpr double kTheta = 10000;
  for (const std::int64_t dims : {2, 8, 16, 34, 64, 128}) {
    Rope rope(kTheta, dims, 700);
    rope.prepare(700);
    for (const Isa isa : isas()) {
      OpContext context(pool, isa, Precision::fp32);
      for (const std::int64_t position : {0, 1, 17, 699}) {
        std::vector<float> head(static_cast<std::size_t>(dims) + 1, -77);
        for (std::int64_t i = 0; i < dims; ++i)
          head[static_cast<std::size_t>(i)] = std::sin(static_cast<float>(i + 1));
        const std::vector<float> before = head;
        rope.apply(context, head.data(), position);
        const auto half = static_cast<std::size_t>(dims / 2);
        for (std::size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position) *
                               std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
          const double a = before[i];
          const double b = before[i + half];
          // Frequency and angle are floats: 700 radians are known to about 1e-4.
          const double bound = 1e-6 + 3e-7 * angle;
          EXPECT_NEAR(head[i], a * std::cos(angle) - b * std::sin(angle), bound)
              << name(isa) << " D " << dims;
          EXPECT_NEAR(head[i + half], b * std::cos(angle) + a * std::sin(angle), bound) << name(isa);
        }
        EXPECT_EQ(head.back(), -77);
      }
    }
  }
}

TEST(Rope, EveryIsaGivesTheSameBits) {
  ThreadPool pool(1);
  Rope rope(1e6, 128, 100);
  rope.prepare(100);
  std::vector<float> want;
  for (const Isa isa : isas()) {
    OpContext context(pool, isa, Precision::fp32);
    std::vector<float> head(128);
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = std::cos(static_cast<float>(i));
    rope.apply(context, head.data(), 99);
    if (want.empty()) want = head;
    EXPECT_EQ(head, want) << name(isa);
  }
}

TEST(Rope, TheTableGrowsInStepsAndKeepsItsValues) {
  ThreadPool pool(1);
  OpContext context(pool, Isa::scalar, Precision::fp32);
  Rope whole(1e4, 8, 2500);
  Rope grown(1e4, 8, 2500);
  whole.prepare(2500);
  const auto rotated = [&](const Rope& rope, std::int64_t position) {
    std::vector<float> head = {1, 2, 3, 4, 5, 6, 7, 8};
    rope.apply(context, head.data(), position);
    return head;
  };
  for (const std::int64_t positions : {0, 1, 1000, 1025, 1025, 2500}) {
    grown.prepare(positions);
    for (std::int64_t position = 0; position < positions; position += 33)
      EXPECT_EQ(rotated(grown, position), rotated(whole, position)) << position;
  }
  EXPECT_EQ(Rope::table_bytes(8, 1), 1024 * 8 * sizeof(float));
  EXPECT_EQ(Rope::table_bytes(8, 1025), 2 * 1024 * 8 * sizeof(float));
}

TEST(Rope, RejectsWhatCannotRotate) {
  EXPECT_THROW(Rope(1e4, 7, 10), Error);
  EXPECT_THROW(Rope(0, 8, 10), Error);
  EXPECT_THROW(Rope(std::nan(""), 8, 10), Error);
  EXPECT_THROW(Rope(1e4, 8, 0), Error);
}

}  // namespace
}  // namespace asynct
