#pragma once

#include <cstdint>

// Shared memory by 32-bit addresses (shared_address, copy_async.cuh), where a pointer would cost two
// registers: load_shared<T>(from), store_shared(to, value), aligned to their size.
namespace asynct::cuda {

/// What a block of sm_90 can have of it, at most.
inline constexpr int kMostSharedBytes = 227 * 1024;

template <class T>
__device__ inline T load_shared(std::uint32_t from);

template <>
__device__ inline uint4 load_shared<uint4>(std::uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from));
  return v;
}
template <>
__device__ inline uint2 load_shared<uint2>(std::uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from));
  return v;
}
template <>
__device__ inline std::uint32_t load_shared<std::uint32_t>(std::uint32_t from) {
  std::uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from));
  return v;
}
template <>
__device__ inline float4 load_shared<float4>(std::uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from));
  return v;
}
template <>
__device__ inline float2 load_shared<float2>(std::uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
  return v;
}

__device__ inline void store_shared(std::uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ inline void store_shared(std::uint32_t to, const uint2& v) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(v.x), "r"(v.y) : "memory");
}
__device__ inline void store_shared(std::uint32_t to, std::uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}
__device__ inline void store_shared(std::uint32_t to, std::uint16_t v) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(v) : "memory");
}
__device__ inline void store_shared(std::uint32_t to, const float4& v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
__device__ inline void store_shared(std::uint32_t to, const float2& v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v.x), "f"(v.y) : "memory");
}
__device__ inline void store_shared(std::uint32_t to, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

}  // namespace asynct::cuda
