#include "asynct/ops/storage.h"

#include "asynct/base/error.h"
#include "asynct/tensor/dtype.h"

namespace asynct {

Storage storage_of(DType dtype, const char* what) {
  switch (dtype) {
    case DType::f32:
      return Storage::f32;
    case DType::bf16:
      return Storage::bf16;
    case DType::f16:
      return Storage::f16;
    default:
      fail(what, " have type ", name(dtype), "; expected fp32, bf16 or fp16");
  }
}

}  // namespace asynct
