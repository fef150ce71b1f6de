#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Products of one warp, m16n8k16 with float sums, and the loads that lay their operands out. With g = lane /
// 4 and t = lane % 4: a sum fragment holds rows g and g + 8, columns 2t and 2t + 1, as {g: 2t, 2t+1; g+8: 2t,
// 2t+1}. A of the next product has the same layout for each half of its 16 columns, so a sum becomes an
// operand by rounding alone.
namespace asynct::cuda {

/// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

/// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

/// The reverse of load_matrices.
__device__ inline void store_matrices(std::uint32_t row, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
               "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

/// sum += a [16, 16] x b [16, 8].
template <class Element>
__device__ inline void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1);

template <>
__device__ inline void multiply_add<__nv_bfloat16>(float (&sum)[4], const std::uint32_t (&a)[4],
                                                   std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply_add<__half>(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats rounded to nearest, `low` in the lower half.
template <class Element>
__device__ inline std::uint32_t pack(float low, float high);

template <>
__device__ inline std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
__device__ inline std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Two floats clamped to [0, bound] and rounded, `bound` packed twice; NaN stays NaN. One clamps while it
/// rounds, the other needs half an instruction a value: the order does not matter, the bounds have no error.
template <class Element>
__device__ inline std::uint32_t pack_weights(float low, float high, std::uint32_t bound);

template <>
__device__ inline std::uint32_t pack_weights<__nv_bfloat16>(float low, float high, std::uint32_t bound) {
  std::uint32_t packed;
  asm("{\n"
      ".reg .b32 rounded;\n"
      "cvt.rn.relu.bf16x2.f32 rounded, %1, %2;\n"
      "min.NaN.bf16x2 %0, rounded, %3;\n"
      "}\n"
      : "=r"(packed)
      : "f"(high), "f"(low), "r"(bound));
  return packed;
}

template <>
__device__ inline std::uint32_t pack_weights<__half>(float low, float high, std::uint32_t bound) {
  std::uint32_t packed;
  asm("{\n"
      ".reg .b32 rounded;\n"
      "cvt.rn.relu.f16x2.f32 rounded, %1, %2;\n"
      "min.NaN.f16x2 %0, rounded, %3;\n"
      "}\n"
      : "=r"(packed)
      : "f"(high), "f"(low), "r"(bound));
  return packed;
}

}  // namespace asynct::cuda
