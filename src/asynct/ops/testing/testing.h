#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "asynct/base/cpu_features.h"
#include "asynct/ops/context.h"
#include "asynct/tensor/tensor.h"

// What the operators' tests share.
namespace asynct::testing {

/// The kernel families this CPU can run, scalar first; all of them, or what ASYNCT_ISA allows.
inline std::vector<Isa> test_isas() {
  std::vector<Isa> isas;
  const Isa most = std::getenv("ASYNCT_ISA") != nullptr ? select_isa() : Isa::amx;
  for (const Isa isa : kIsas)
    if (isa <= most && cpu_runs(isa)) isas.push_back(isa);
  return isas;
}

using Random = std::mt19937;

inline float normal(Random& random, float scale = 1) {
  return std::normal_distribution<float>(0, scale)(random);
}

/// A matrix with a stride, poisoned with NaN everywhere, and canaries between and after its rows.
class GuardedMatrix {
 public:
  GuardedMatrix(std::int64_t rows, std::int64_t cols, std::int64_t gap)
      : rows_(rows), cols_(cols), stride_(cols + gap) {
    values_.assign(static_cast<std::size_t>(rows * stride_ + kGuard),
                   std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t i = 0; i < std::ssize(values_); ++i)
      if (i >= rows * stride_ || i % stride_ >= cols) values_[static_cast<std::size_t>(i)] = kCanary;
  }

  Matrix matrix() { return {values_.data(), rows_, cols_, stride_}; }
  ConstMatrix matrix() const { return {values_.data(), rows_, cols_, stride_}; }

  /// Fills with normal values; with bf16 precision, rounded.
  void fill(Random& random, Precision precision = Precision::fp32, float scale = 1) {
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t c = 0; c < cols_; ++c) {
        const float value = normal(random, scale);
        matrix().row(r)[c] = precision == Precision::bf16 ? round_to_bf16(value) : value;
      }
  }

  bool canaries_alive() const {
    for (std::int64_t i = 0; i < std::ssize(values_); ++i)
      if ((i >= rows_ * stride_ || i % stride_ >= cols_) && values_[static_cast<std::size_t>(i)] != kCanary)
        return false;
    return true;
  }

 private:
  static constexpr float kCanary = -77777;
  static constexpr std::int64_t kGuard = 32;
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::vector<float> values_;
};

/// A weight tensor of normal values times `scale`.
inline Tensor random_tensor(Random& random, DType dtype, Shape shape, float scale = 1) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const float value = normal(random, scale);
    const auto at = static_cast<std::size_t>(i);
    if (dtype == DType::f32) tensor.values<float>()[at] = value;
    if (dtype == DType::bf16) tensor.values<Bf16>()[at] = to_bf16(value);
    if (dtype == DType::f16) tensor.values<F16>()[at] = to_f16(value);
  }
  return tensor;
}

/// |found - expected| / |expected| over all elements; NaN when any element is.
inline double relative_error(ConstMatrix found, std::span<const double> expected) {
  double difference = 0;
  double norm = 0;
  for (std::int64_t r = 0; r < found.rows; ++r)
    for (std::int64_t c = 0; c < found.cols; ++c) {
      const double want = expected[static_cast<std::size_t>(r * found.cols + c)];
      difference += (found.row(r)[c] - want) * (found.row(r)[c] - want);
      norm += want * want;
    }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

/// The same bits (so that NaN equals NaN and -0 differs from 0).
inline bool same_bits(const float* a, const float* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}
inline bool same_bits(ConstMatrix a, ConstMatrix b) {
  for (std::int64_t r = 0; r < a.rows; ++r)
    if (!same_bits(a.row(r), b.row(r), a.cols)) return false;
  return a.rows == b.rows && a.cols == b.cols;
}

/// Counts the calls of an epilogue, row by row.
class RowCounter {
 public:
  explicit RowCounter(std::int64_t rows) : calls_(static_cast<std::size_t>(rows)) {}
  void operator()(std::int64_t begin, std::int64_t end, int /*worker*/) {
    for (std::int64_t r = begin; r < end; ++r) ++calls_[static_cast<std::size_t>(r)];
  }
  bool each_once() const {
    for (const int count : calls_)
      if (count != 1) return false;
    return true;
  }

 private:
  std::vector<int> calls_;  // rows belong to one worker each, so plain counters do
};

}  // namespace asynct::testing
