#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace asynct {

/// A file mapped read-only. Pages come from disk on first touch and belong to the page cache, not to us.
class MappedFile {
 public:
  MappedFile() = default;
  /// Errors: missing or unreadable file, a directory.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  /// Drops the resident pages of `part` (they can be read again): called once weights have been packed.
  void release(std::span<const std::byte> part) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole file as text. Errors: missing, unreadable, larger than `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit);

}  // namespace asynct
