#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace asynct {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i64 };

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// "fp32", "bf16", "fp16", ...: as the command line and reports write it.
std::string_view name(DType type);

/// Storage of bf16 and f16 values; arithmetic is done in float.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Round to nearest even; NaN stays NaN (quiet).
constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

/// `value` rounded to the nearest bf16 and widened again: what an operator stores in bf16 mode.
constexpr float round_to_bf16(float value) { return to_float(to_bf16(value)); }

float to_float(F16 value);
/// Round to nearest even; overflow gives infinity.
F16 to_f16(float value);

}  // namespace asynct
