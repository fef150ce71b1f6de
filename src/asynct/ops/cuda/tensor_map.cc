#include "asynct/ops/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {
namespace {

/// The driver's function, found at run time: the program does not link to the driver, so that it starts
/// without one.
decltype(&cuTensorMapEncodeTiled) encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw CudaError("CUDA: the driver has no cuTensorMapEncodeTiled; version 525 or later is needed");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

CUtensorMapDataType element(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      fail("tensor map: dtype ", name(dtype), ", expected bf16 or fp16");
  }
}

}  // namespace

CUtensorMap make_tensor_map(const void* data, const TensorMapShape& shape) {
  static const auto encode = encoder();
  CUtensorMap map;
  const std::array<std::uint32_t, 5> every = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(&map, element(shape.dtype), 5, const_cast<void*>(data), shape.size.data(), shape.stride.data(),
             shape.box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    fail("tensor map: refused by the driver (", static_cast<int>(result), ") for sizes ", shape.size[0], " ",
         shape.size[1], " ", shape.size[2], " ", shape.size[3], " ", shape.size[4], ", strides ",
         shape.stride[0], " ", shape.stride[1], " ", shape.stride[2], " ", shape.stride[3], " bytes");
  return map;
}

}  // namespace asynct::cuda
