#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/tensor/dtype.h"

// Tensors that Python hands over, and what is checked of them before anything is launched.
namespace asynct::extension {

/// An element type or a kind of object that does not fit; Python sees TypeError, RuntimeError for
/// CudaError, ValueError for other Errors.
class TypeError : public Error {
 public:
  using Error::Error;
};

/// Somebody else's memory.
struct TensorRef {
  void* data = nullptr;
  std::optional<DType> dtype;  // empty: one that no kernel knows
  bool on_cuda = false;
  int device = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  // in elements
};

/// "[4, 16, 2, 128]"
std::string shape_text(const std::vector<std::int64_t>& sizes);

/// TypeError unless the dtype is one of these.
void expect_dtype(std::string_view name, const TensorRef& tensor, std::initializer_list<DType> expected);

/// Error unless the tensor lies on that CUDA device.
void expect_device(std::string_view name, const TensorRef& tensor, int device);

/// Error unless the sizes are these; -1 stands for any.
void expect_shape(std::string_view name, const TensorRef& tensor, std::initializer_list<std::int64_t> sizes);

/// Error unless rows can be moved 16 bytes at a time: the last dimension contiguous, the others and the
/// beginning at multiples of 16 bytes. Sets the stride of a dimension of one element, which says nothing, to
/// the row's length.
void expect_rows(std::string_view name, TensorRef& tensor);

/// Error unless it is a contiguous piece of memory of at least `elements`.
void expect_room(std::string_view name, const TensorRef& tensor, std::int64_t elements);

}  // namespace asynct::extension
