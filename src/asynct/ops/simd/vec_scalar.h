#pragma once

#include <cstdint>

#include "asynct/tensor/dtype.h"

// The same vectors in plain C++: loops of fixed length, which the compiler turns into whatever the base
// architecture has. A multiply-add rounds twice here.
namespace asynct {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  float v[kLanes];

  static Vec zero() { return all(0); }
  static Vec all(float value) {
    Vec out;
    for (float& lane : out.v) lane = value;
    return out;
  }
  static Vec broadcast(const float* p) { return all(*p); }
  static Vec load(const float* p) { return load_first(p, kLanes); }
  static Vec load_first(const float* p, std::int64_t count) {
    Vec out = zero();
    for (int i = 0; i < count; ++i) out.v[i] = p[i];
    return out;
  }
  void store(float* p) const { store_first(p, kLanes); }
  void store_first(float* p, std::int64_t count) const {
    for (int i = 0; i < count; ++i) p[i] = v[i];
  }

  /// Low and high halves of 16 dwords of bf16 pairs, widened.
  static Vec load_bf16_low(const std::uint16_t* p) { return load_bf16(p, 0); }
  static Vec load_bf16_high(const std::uint16_t* p) { return load_bf16(p, 1); }
  static Vec load_bf16(const std::uint16_t* p, int half) {
    Vec out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = to_float(Bf16{p[2 * i + half]});
    return out;
  }
  static Vec load_f16(const std::uint16_t* p) {
    Vec out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = to_float(F16{p[i]});
    return out;
  }

  /// a * b + c
  static Vec fma(Vec a, Vec b, Vec c) {
    for (int i = 0; i < kLanes; ++i) c.v[i] += a.v[i] * b.v[i];
    return c;
  }

  /// Bit i: lane i is above zero or NaN; is NaN; equals value.
  std::uint32_t active() const {
    return mask([](float lane) { return !(lane <= 0); });
  }
  std::uint32_t nans() const {
    return mask([](float lane) { return lane != lane; });
  }
  std::uint32_t equals(Vec value) const {
    std::uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= static_cast<std::uint32_t>(v[i] == value.v[i]) << i;
    return bits;
  }
  template <class Predicate>
  std::uint32_t mask(Predicate predicate) const {
    std::uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= static_cast<std::uint32_t>(predicate(v[i])) << i;
    return bits;
  }
};

/// A sum in double for each lane of Vec.
struct DoubleSum {
  double lanes[Vec::kLanes] = {};

  void add(Vec x) {
    for (int i = 0; i < Vec::kLanes; ++i) lanes[i] += x.v[i];
  }
  void store(double* to) const {
    for (int i = 0; i < Vec::kLanes; ++i) to[i] = lanes[i];
  }
};

inline void prefetch(const void* /*p*/) {}

}  // namespace
}  // namespace asynct
