#pragma once

#include <cuda_runtime_api.h>

#include <cassert>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "asynct/ops/cuda/error.h"

namespace asynct::cuda {

/// Owns `size()` elements of device memory.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    void* data = nullptr;
    if (size > 0) check(cudaMalloc(&data, size * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(data);
  }
  explicit DeviceBuffer(std::span<const T> values) : DeviceBuffer(values.size()) { upload(values); }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(std::span<const T>(values)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBuffer() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// Each byte of the buffer; 0xFF makes every 16- and 32-bit float a NaN.
  void fill_bytes(int value) { check(cudaMemset(data_, value, size_ * sizeof(T)), "cudaMemset"); }
  void upload(std::span<const T> values) {
    assert(values.size() == size_);
    check(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  /// Waits for the device.
  std::vector<T> download() const {
    std::vector<T> values(size_);
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace asynct::cuda
