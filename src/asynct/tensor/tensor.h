#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "asynct/tensor/dtype.h"

namespace asynct {

/// Dimensions of a tensor, outermost first, at most four.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const {
    assert(axis >= 0 && axis < rank_);
    return dims_[static_cast<std::size_t>(axis)];
  }
  std::int64_t elements() const;
  bool operator==(const Shape& other) const;
  std::string to_string() const;  // "[4096, 256]"

 private:
  std::array<std::int64_t, 4> dims_{};
  int rank_ = 0;
};

/// A contiguous, row-major block of values that somebody else owns (a mapped checkpoint, a Tensor).
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
  /// Element `index` of the flattened tensor as float (f32, bf16, f16 only). Slow: for loading and tests.
  float at(std::int64_t index) const;
};

/// Rows of floats with a stride: how operators see activations on the CPU.
///   row(i) = data + i * stride, `cols` values each
template <class T>
struct MatrixOf {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // in elements, >= cols

  MatrixOf() = default;
  MatrixOf(T* d, std::int64_t r, std::int64_t c, std::int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  MatrixOf(T* d, std::int64_t r, std::int64_t c) : MatrixOf(d, r, c, c) {}
  /// A writable matrix is also a readable one.
  operator MatrixOf<const T>() const { return {data, rows, cols, stride}; }  // NOLINT

  T* row(std::int64_t i) const {
    assert(i >= 0 && i < rows);
    return data + i * stride;
  }
  MatrixOf slice_rows(std::int64_t begin, std::int64_t count) const {
    assert(begin >= 0 && begin + count <= rows);
    return {data + begin * stride, count, cols, stride};
  }
  MatrixOf slice_cols(std::int64_t begin, std::int64_t count) const {
    assert(begin >= 0 && begin + count <= cols);
    return {data + begin, rows, count, stride};
  }
};
using Matrix = MatrixOf<float>;
using ConstMatrix = MatrixOf<const float>;

/// What a large buffer asks of the kernel. `huge`: pages of 2 MB, for memory that is filled at once and read
/// often (weights stream up to a tenth faster). `small`: never, for memory that fills slowly and should be
/// resident only where it was written (the KV cache).
enum class Pages { any, huge, small };

/// Owns 64-byte aligned memory, or a piece of an Arena's; not initialized. Moves, does not copy.
class Buffer {
 public:
  Buffer() = default;
  /// std::bad_alloc when there is no memory.
  explicit Buffer(std::size_t bytes, Pages pages = Pages::any);

  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&&) = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() = default;

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  friend class Arena;
  Buffer(std::shared_ptr<std::byte> data, std::size_t bytes) : data_(std::move(data)), size_(bytes) {}

  std::shared_ptr<std::byte> data_;  // pieces share their arena's memory
  std::size_t size_ = 0;
};

/// One buffer given out in pieces that keep it alive: matrices too small for a page of 2 MB each lie in
/// shared ones.
class Arena {
 public:
  Arena() = default;
  Arena(std::size_t bytes, Pages pages) : whole_(bytes, pages), pages_(pages) {}

  /// `bytes` of the arena, or where it has less left, of memory of their own.
  Buffer take(std::size_t bytes);

 private:
  Buffer whole_;
  Pages pages_ = Pages::any;
  std::size_t used_ = 0;
};

/// A contiguous tensor that owns its memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  TensorView view() const { return {buffer_.data(), dtype_, shape_}; }
  template <class T>
  std::span<T> values() const {
    assert(sizeof(T) == size_of(dtype_));
    return {buffer_.as<T>(), static_cast<std::size_t>(shape_.elements())};
  }

 private:
  DType dtype_ = DType::f32;
  Shape shape_;
  Buffer buffer_;
};

/// All elements as float (f32, bf16, f16).
void copy_to_float(TensorView from, float* to);

}  // namespace asynct
