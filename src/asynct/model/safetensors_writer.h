#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "asynct/tensor/tensor.h"

namespace asynct {

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::f32;  // f32, bf16 or f16
  Shape shape;
};

/// Writes a safetensors file piece by piece: the header and the reserved space first (a full disk shows
/// then), then any part of any tensor from any thread. A file that was not finished is removed.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  std::size_t file_bytes() const { return file_bytes_; }

  /// Bytes [offset, offset + data.size()) of tensor `index`. Safe to call from several threads. Errors: the
  /// disk.
  void write(std::size_t index, std::size_t offset, std::span<const std::byte> data);

  /// Flushes and closes; Errors of the disk that were held back show here.
  void finish();

 private:
  void write_at(std::size_t position, std::span<const std::byte> data);

  std::string path_;
  int fd_ = -1;
  bool finished_ = false;
  std::vector<std::size_t> begin_;  // of each tensor, from the start of the file
  std::size_t file_bytes_ = 0;
};

}  // namespace asynct
