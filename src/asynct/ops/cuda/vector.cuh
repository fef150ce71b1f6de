#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "asynct/ops/cuda/mma.cuh"

// 16 bytes of elements as floats, for kernels that move each element once. Arithmetic that a CPU kernel
// shares is written with __fmul_rn and __fadd_rn: never contracted, so that both round alike.
namespace asynct::cuda {

template <class Element>
inline constexpr int kVectorSize = 16 / static_cast<int>(sizeof(Element));

/// Two packed elements as floats.
template <class Element>
__device__ inline float2 unpack(std::uint32_t packed);

template <>
__device__ inline float2 unpack<__nv_bfloat16>(std::uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
}

template <>
__device__ inline float2 unpack<__half>(std::uint32_t packed) {
  return __half22float2(__halves2half2(__ushort_as_half(static_cast<unsigned short>(packed)),
                                       __ushort_as_half(static_cast<unsigned short>(packed >> 16))));
}

/// kCount elements that lie in memory as they would in an array, `from` aligned to their size, at most 16
/// bytes a load. Not through the read-only path: what is read may be written by the same thread later.
template <class Element, int kCount>
__device__ inline void load_vector(const Element* from, float (&to)[kCount]) {
  if constexpr (sizeof(Element) == 4) {
    static_assert(kCount % 4 == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(from + i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  } else if constexpr (kCount == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    const float2 a = unpack<Element>(v.x), b = unpack<Element>(v.y);
    to[0] = a.x, to[1] = a.y, to[2] = b.x, to[3] = b.y;
  } else {
    static_assert(kCount % 8 == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from + i);
      const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float2 pair = unpack<Element>(words[w]);
        to[i + 2 * w] = pair.x;
        to[i + 2 * w + 1] = pair.y;
      }
    }
  }
}

/// Rounds to nearest, NaN stays NaN; kCount elements, 16 bytes a store.
template <class Element, int kCount>
__device__ inline void store_vector(Element* to, const float (&values)[kCount]) {
  static_assert(kCount % kVectorSize<Element> == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += kVectorSize<Element>) {
    if constexpr (sizeof(Element) == 4)
      *reinterpret_cast<float4*>(to + i) =
          make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    else
      *reinterpret_cast<uint4*>(to + i) = make_uint4(
          pack<Element>(values[i], values[i + 1]), pack<Element>(values[i + 2], values[i + 3]),
          pack<Element>(values[i + 4], values[i + 5]), pack<Element>(values[i + 6], values[i + 7]));
  }
}

/// What a value becomes when it is stored as Element and read again.
template <class Element, int kCount>
__device__ inline void round_vector(float (&values)[kCount]) {
  if constexpr (sizeof(Element) == 2) {
    static_assert(kCount % 2 == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const float2 pair = unpack<Element>(pack<Element>(values[i], values[i + 1]));
      values[i] = pair.x;
      values[i + 1] = pair.y;
    }
  }
}

}  // namespace asynct::cuda
