#include "asynct/tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "asynct/base/error.h"

namespace asynct {

Shape::Shape(std::initializer_list<std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  assert(dims.size() <= dims_.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < rank_; ++axis) count *= (*this)[axis];
  return count;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(dims_.begin(), dims_.begin() + rank_, other.dims_.begin());
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) text += cat(axis == 0 ? "" : ", ", (*this)[axis]);
  return text + "]";
}

float TensorView::at(std::int64_t index) const {
  assert(index >= 0 && index < shape.elements());
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[index];
    case DType::bf16:
      return to_float(static_cast<const Bf16*>(data)[index]);
    case DType::f16:
      return to_float(static_cast<const F16*>(data)[index]);
    default:
      assert(false);
      return 0;
  }
}

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // Weights stream at up to a tenth more from huge pages: hardware prefetch and page walks stop less often.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kCacheLine = 64;
  const bool large = bytes >= 2 * kHugePage;
  const std::size_t align = large ? kHugePage : kCacheLine;
  void* const memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);  // only advice: a kernel without them changes nothing
#endif
  data_.reset(static_cast<std::byte*>(memory));
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(shape), buffer_(static_cast<std::size_t>(shape.elements()) * size_of(dtype)) {}

void copy_to_float(TensorView from, float* to) {
  const std::int64_t count = from.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) to[i] = from.at(i);
}

}  // namespace asynct
