#include "asynct/ops/norm/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "asynct/base/error.h"

namespace asynct {
namespace {

std::vector<Isa> isas() {
  std::vector<Isa> found = {Isa::scalar};
  if (cpu_features().avx2) found.push_back(Isa::avx2);
  if (cpu_features().avx512) found.push_back(Isa::avx512);
  return found;
}

std::vector<float> normals(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

double reference(const NormParams& p, const std::vector<float>& x, std::size_t i) {
  const auto of = [&](const std::vector<float>& values) {
    return double{values.size() == 1 ? values[0] : values[i]};
  };
  if (p.kind == NormKind::rms) {
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    return of(p.gamma) * x[i] / std::sqrt(squares / static_cast<double>(x.size()) + double{p.epsilon});
  }
  const double t = of(p.alpha) * x[i] + (p.beta.empty() ? 0 : of(p.beta));
  return of(p.gamma) * std::clamp(t, double{p.clip_low}, double{p.clip_high});
}

constexpr float kGuard = -77;

TEST(Norm, MatchesTheReference) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  for (const std::int64_t size : {1, 5, 8, 16, 17, 64, 100, 256})
    for (const NormKind kind : {NormKind::dyht, NormKind::rms})
      for (const bool per_channel : {false, true})
        for (const bool beta : {false, true}) {
          NormParams params = {.kind = kind, .clip_low = -0.9F, .clip_high = 0.8F};
          params.alpha = normals(random, per_channel ? size : 1);
          params.gamma = normals(random, per_channel ? size : 1);
          if (beta) params.beta = normals(random, per_channel ? size : 1);
          const Norm norm(params, size);
          const std::vector<float> x = normals(random, size);
          for (const Isa isa : isas())
            for (const Precision precision : {Precision::fp32, Precision::bf16}) {
              OpContext context(pool, isa, precision);
              std::vector<float> y(static_cast<std::size_t>(size) + 1, kGuard);
              norm.apply(context, x.data(), y.data(), true);
              for (std::size_t i = 0; i < x.size(); ++i) {
                const double want = reference(params, x, i);
                const double bound = precision == Precision::fp32 ? 1e-6 : 4.1e-3;
                EXPECT_NEAR(y[i], want, bound * (std::abs(want) + 0.5)) << name(isa) << " size " << size;
                EXPECT_TRUE(precision == Precision::fp32 || y[i] == round_to_bf16(y[i]));
              }
              EXPECT_EQ(y.back(), kGuard);
            }
        }
}

TEST(Norm, RunIsApplyOnEveryRowAndMayWorkInPlace) {
  std::mt19937 random(2);
  ThreadPool pool(3);
  OpContext context(pool, isas().back(), Precision::bf16);
  const Norm norm({.alpha = {0.7F}, .gamma = {1.1F}}, 40);
  std::vector<float> x = normals(random, 33 * 48);
  std::vector<float> want = x;
  for (std::int64_t row = 0; row < 33; ++row)
    norm.apply(context, want.data() + row * 48, want.data() + row * 48, true);
  norm.run(context, ConstMatrix(x.data(), 33, 40, 48), Matrix(x.data(), 33, 40, 48));
  EXPECT_EQ(x, want);
}

TEST(Norm, NanInNanOut) {
  ThreadPool pool(1);
  for (const Isa isa : isas())
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      OpContext context(pool, isa, precision);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> x(20, 1), y(20);
      x[3] = x[18] = nan;
      Norm({.alpha = {1}, .gamma = {1}}, 20).apply(context, x.data(), y.data(), true);
      for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(y[i]), i == 3 || i == 18) << name(isa);
      Norm({.kind = NormKind::rms, .gamma = {1}}, 20).apply(context, x.data(), y.data(), true);
      for (const float value : y) EXPECT_TRUE(std::isnan(value)) << name(isa);
    }
}

TEST(Norm, RejectsParametersOfAnotherSize) {
  EXPECT_THROW(Norm({.alpha = {1, 2}, .gamma = {1}}, 3), Error);
  EXPECT_THROW(Norm({.alpha = {1}, .gamma = {}}, 3), Error);
  EXPECT_THROW(Norm({.alpha = {1}, .gamma = {1}, .beta = {1, 2}}, 3), Error);
  EXPECT_THROW(Norm({.alpha = {1}, .gamma = {1}}, 0), Error);
  EXPECT_NO_THROW(Norm({.kind = NormKind::rms, .gamma = {1, 1, 1}}, 3));
}

}  // namespace
}  // namespace asynct
