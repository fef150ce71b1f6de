#include "asynct/serve/load/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "asynct/base/error.h"

namespace asynct::load {
namespace {

constexpr int kDraws = 20000;

std::vector<double> draws(std::string_view text) {
  const LengthDistribution lengths = LengthDistribution::parse(text, "--prompt-tokens");
  Random random(1);
  std::vector<double> values(kDraws);
  for (double& value : values) value = static_cast<double>(lengths.draw(random));
  return values;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::vector<double>& values) {
  const double center = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - center) * (value - center);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(LengthDistribution, IsConstantNormalOrUniform) {
  EXPECT_EQ(draws("128"), std::vector<double>(kDraws, 128));
  EXPECT_EQ(draws("7:0"), std::vector<double>(kDraws, 7));

  const auto normal = draws("1000:100");
  EXPECT_NEAR(mean(normal), 1000, 4);  // the standard error is 0.7
  EXPECT_NEAR(deviation(normal), 100, 3);

  const auto uniform = draws("64..73");
  EXPECT_EQ(*std::min_element(uniform.begin(), uniform.end()), 64);
  EXPECT_EQ(*std::max_element(uniform.begin(), uniform.end()), 73);
  EXPECT_NEAR(mean(uniform), 68.5, 0.15);
  for (int value = 64; value <= 73; ++value)
    EXPECT_NEAR(std::count(uniform.begin(), uniform.end(), value), kDraws / 10, 250);
}

TEST(LengthDistribution, IsAtLeastOne) {
  const auto values = draws("2:50");
  EXPECT_EQ(*std::min_element(values.begin(), values.end()), 1);
}

TEST(LengthDistribution, RefusesWhatIsNone) {
  for (const char* const text :
       {"", "0", "-1", "a", "1:", ":1", "1:-1", "1:nan", "1:inf", "5..4", "0..4", "1..", "..", "1..2..3",
        "1.5", "10000001", "1..10000001", "99999999999999999999", "1 "}) {
    try {
      LengthDistribution::parse(text, "--prompt-tokens");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).substr(0, 16), "--prompt-tokens:");
    }
  }
}

TEST(ArrivalProcess, IsPoisson) {
  ArrivalProcess arrivals(50, 3);
  double last = 0;
  std::vector<double> gaps(kDraws);
  for (double& gap : gaps) {
    const double now = arrivals.next();
    gap = now - last;
    last = now;
    ASSERT_GE(gap, 0);
  }
  // Gaps of a Poisson process are exponential: their deviation is their mean, and e^-1 of them exceed it.
  EXPECT_NEAR(mean(gaps), 0.02, 0.0006);
  EXPECT_NEAR(deviation(gaps), 0.02, 0.0008);
  const auto longer = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 0.02; });
  EXPECT_NEAR(static_cast<double>(longer) / kDraws, std::exp(-1), 0.012);
}

TEST(ArrivalProcess, DependsOnTheSeedOnly) {
  ArrivalProcess a(1, 5), b(1, 5), c(1, 6);
  const double first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
}

TEST(ArrivalProcess, OfInfiniteRateIsAtOnce) {
  ArrivalProcess arrivals(parse_rate("inf", "--rate"), 1);
  EXPECT_EQ(arrivals.next(), 0);
  EXPECT_EQ(arrivals.next(), 0);
}

TEST(ParseRate, TakesNumbersAboveZero) {
  EXPECT_EQ(parse_rate("2.5", "--rate"), 2.5);
  EXPECT_EQ(parse_rate("inf", "--rate"), std::numeric_limits<double>::infinity());
  for (const char* const text : {"", "0", "-1", "nan", "-inf", "1e300", "1e-300", "1x"})
    EXPECT_THROW(parse_rate(text, "--rate"), Error) << text;
}

// Seeds give the same load everywhere: the engine's first value is specified by the C++ standard's
// algorithm, 14514284786278117030 for seed 5489 (the default seed of mt19937_64).
TEST(Random, IsTheSameEverywhere) {
  Random random(5489);
  EXPECT_EQ(random.unit(), static_cast<double>(14514284786278117030ULL >> 11) * 0x1p-53);
}

}  // namespace
}  // namespace asynct::load
