#include "asynct/python/tensor_ref.h"

#include <algorithm>

namespace asynct::extension {
namespace {

std::string_view dtype_text(const TensorRef& tensor) {
  return tensor.dtype ? asynct::name(*tensor.dtype) : std::string_view("none of the kernels'");
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += cat(i > 0 ? ", " : "", sizes[i]);
  return text + "]";
}

void expect_dtype(std::string_view name, const TensorRef& tensor, std::initializer_list<DType> expected) {
  if (tensor.dtype && std::find(expected.begin(), expected.end(), *tensor.dtype) != expected.end()) return;
  std::string names;
  for (const DType dtype : expected) names += cat(names.empty() ? "" : " or ", asynct::name(dtype));
  throw TypeError(cat(name, ": dtype ", dtype_text(tensor), ", expected ", names));
}

void expect_device(std::string_view name, const TensorRef& tensor, int device) {
  if (!tensor.on_cuda) fail(name, ": on the CPU, expected on cuda:", device);
  if (tensor.device != device) fail(name, ": on cuda:", tensor.device, ", expected on cuda:", device);
}

void expect_shape(std::string_view name, const TensorRef& tensor, std::initializer_list<std::int64_t> sizes) {
  const auto fits = [](std::int64_t found, std::int64_t expected) {
    return expected == -1 || found == expected;
  };
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), sizes.begin(), sizes.end(), fits)) return;
  std::string expected;
  for (const std::int64_t size : sizes)
    expected += cat(expected.empty() ? "" : ", ", size == -1 ? std::string("any") : cat(size));
  fail(name, ": shape ", shape_text(tensor.shape), ", expected [", expected, "]");
}

void expect_rows(std::string_view name, TensorRef& tensor) {
  const std::size_t last = tensor.shape.size() - 1;
  if (tensor.stride[last] != 1 && tensor.shape[last] != 1)
    fail(name, ": elements of a row are ", tensor.stride[last], " apart, expected contiguous rows");
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0)
    fail(name, ": does not begin at a multiple of 16 bytes");
  const auto bytes = static_cast<std::int64_t>(size_of(*tensor.dtype));
  for (std::size_t i = 0; i < last; ++i) {
    if (tensor.shape[i] == 1) tensor.stride[i] = tensor.shape[last];
    if (tensor.stride[i] < 0 || tensor.stride[i] * bytes % 16 != 0)
      fail(name, ": stride ", tensor.stride[i], " of dimension ", i, ", expected a multiple of ", 16 / bytes,
           " elements");
  }
}

void expect_room(std::string_view name, const TensorRef& tensor, std::int64_t elements) {
  std::int64_t found = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.stride[i] != found) fail(name, ": not contiguous");
    found *= tensor.shape[i];
  }
  if (found < elements) fail(name, ": ", found, " elements, expected at least ", elements);
}

}  // namespace asynct::extension
