#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/device_buffer.h"
#include "asynct/tensor/dtype.h"

// Tensors of any float dtype between tests and the device. Tests of element-wise kernels compare bits: the
// arithmetic is the CPU's.
namespace asynct::cuda {

inline constexpr DType kFloatTypes[] = {DType::bf16, DType::f16, DType::f32};

/// A value rounded to the dtype.
inline float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return to_float(to_bf16(value));
    case DType::f16:
      return to_float(to_f16(value));
    default:
      return value;
  }
}

/// Values in a device buffer, a guard of 16 bytes behind them.
class DeviceTensor {
 public:
  DeviceTensor(std::size_t size, DType dtype)
      : dtype_(dtype), size_(size), bytes_(size * size_of(dtype) + kGuard) {
    bytes_.fill_bytes(0xFF);
  }
  DeviceTensor(const std::vector<float>& values, DType dtype) : DeviceTensor(values.size(), dtype) {
    std::vector<std::byte> bytes(bytes_.size(), std::byte{0xFF});
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f32) {
        std::memcpy(bytes.data() + 4 * i, &values[i], 4);
        continue;
      }
      const std::uint16_t bits = dtype == DType::bf16 ? to_bf16(values[i]).bits : to_f16(values[i]).bits;
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    bytes_.upload(std::span<const std::byte>(bytes));
  }

  void* data() const { return bytes_.data(); }
  void* at(std::size_t element) const { return bytes_.data() + element * size_of(dtype_); }
  DType dtype() const { return dtype_; }

  /// What was never written reads as NaN.
  std::vector<float> values() const {
    const std::vector<std::byte> bytes = bytes_.download();
    std::vector<float> values(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      std::uint16_t bits = 0;
      if (dtype_ == DType::f32)
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      else
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
      if (dtype_ == DType::bf16) values[i] = to_float(Bf16{bits});
      if (dtype_ == DType::f16) values[i] = to_float(F16{bits});
    }
    for (std::size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
      EXPECT_EQ(bytes[i], std::byte{0xFF}) << "written behind the end";
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 16;

  DType dtype_;
  std::size_t size_;
  DeviceBuffer<std::byte> bytes_;
};

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> random_values(std::mt19937& random, std::size_t count, DType dtype,
                                        float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = rounded(normal(random), dtype);
  return values;
}

/// Equal bit for bit, any NaN like any other.
inline void expect_same(const std::vector<float>& got, const std::vector<float>& want,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t differ = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want[i])) continue;
    if (++differ <= 3) ADD_FAILURE() << what << ": " << got[i] << " at " << i << ", expected " << want[i];
  }
  EXPECT_EQ(differ, 0U) << what << ": of " << got.size();
}

/// Expects an Error whose text holds `words`.
template <class Call>
void expect_error(const Call& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "expected an error: " << words;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

}  // namespace asynct::cuda
