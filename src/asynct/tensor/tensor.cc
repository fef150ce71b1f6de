#include "asynct/tensor/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
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

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCacheLine = 64;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Whole pages, aligned to 2 MB without leaving the rest of an aligned range mapped.
std::byte* map_aligned(std::size_t bytes) {
  const std::size_t room = bytes + kHugePage;
  if (room < bytes) throw std::bad_alloc();
  void* const start = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(start);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const std::size_t before = round_up(address, kHugePage) - address;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePage) ::munmap(begin + before + bytes, kHugePage - before);
  return begin + before;
}

}  // namespace

Buffer::Buffer(std::size_t bytes, Pages pages) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes < kHugePage) {
    auto* const memory = std::aligned_alloc(kCacheLine, round_up(bytes, kCacheLine));
    if (memory == nullptr) throw std::bad_alloc();
    data_.reset(static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); });
    return;
  }
  const std::size_t mapped = round_up(bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  if (mapped < bytes) throw std::bad_alloc();
  data_.reset(map_aligned(mapped), [mapped](std::byte* p) { ::munmap(p, mapped); });
#ifdef MADV_HUGEPAGE
  // Only advice: a kernel without huge pages changes nothing.
  if (pages == Pages::huge) ::madvise(data_.get(), mapped, MADV_HUGEPAGE);
  if (pages == Pages::small) ::madvise(data_.get(), mapped, MADV_NOHUGEPAGE);
#endif
}

Buffer Arena::take(std::size_t bytes) {
  const std::size_t piece = round_up(bytes, kCacheLine);
  if (piece < bytes || piece > whole_.size() - used_) return Buffer(bytes, pages_);
  std::byte* const begin = whole_.data() + used_;
  used_ += piece;
  return {std::shared_ptr<std::byte>(whole_.data_, begin), bytes};
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(shape), buffer_(static_cast<std::size_t>(shape.elements()) * size_of(dtype)) {}

void copy_to_float(TensorView from, float* to) {
  const std::int64_t count = from.shape.elements();
  for (std::int64_t i = 0; i < count; ++i) to[i] = from.at(i);
}

}  // namespace asynct
