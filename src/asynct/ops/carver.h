#pragma once

#include <cstddef>
#include <cstdint>

namespace asynct {

/// Hands out pieces of a block of memory, each on cache lines of its own. Without a block it only counts, so
/// that one function says what lies where and how much it takes.
class Carver {
 public:
  explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t count) {
    T* const piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine;
    return piece;
  }

  /// Bytes of all pieces.
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kLine = 64;
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace asynct
