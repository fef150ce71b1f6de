#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/tensor/dtype.h"

// From dtypes and pointers of a call to the instances of a kernel; Error with the kernel's name for what it
// cannot take.
namespace asynct::cuda {

/// Calls launch.operator()<Element>().
template <class Launch>
void by_dtype(std::string_view kernel, DType dtype, const Launch& launch) {
  switch (dtype) {
    case DType::bf16:
      return launch.template operator()<__nv_bfloat16>();
    case DType::f16:
      return launch.template operator()<__half>();
    case DType::f32:
      return launch.template operator()<float>();
    default:
      fail(kernel, ": dtype ", name(dtype), ", expected bf16, fp16 or fp32");
  }
}

/// The same for what a product left in memory, rounded or in float: launch.operator()<Element, Source>().
template <class Launch>
void by_dtypes(std::string_view kernel, DType dtype, DType source, const Launch& launch) {
  by_dtype(kernel, dtype, [&]<class Element>() {
    if (source == dtype) return launch.template operator()<Element, Element>();
    if (source == DType::f32) return launch.template operator()<Element, float>();
    fail(kernel, ": input of dtype ", name(source), ", expected ", name(dtype), " or fp32");
  });
}

/// `bytes` apart in memory, or at a pointer: kernels move 16 bytes at a time.
inline void expect_aligned(std::string_view kernel, std::string_view what, std::int64_t bytes) {
  if (bytes % 16 != 0) fail(kernel, ": ", what, " of ", bytes, " bytes, expected a multiple of 16");
}
inline void expect_aligned(std::string_view kernel, std::string_view what, const void* pointer) {
  if (pointer == nullptr) fail(kernel, ": no ", what);
  if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0)
    fail(kernel, ": ", what, " does not begin at a multiple of 16 bytes");
}

}  // namespace asynct::cuda
