#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asynct/base/mapped_file.h"
#include "asynct/tensor/tensor.h"

namespace asynct {

/// One entry of a safetensors header. `begin` and `end` are byte offsets from the start of the file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written: "BF16"
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Parses and checks the header of a whole safetensors file: its length (at most 100 MB), its JSON, known
/// dtypes, sizes that equal shape times dtype, and offsets that cover the data without hole, overlap or rest,
/// as the format demands. Entries come back in file order. Nothing of the tensors themselves is read.
std::vector<SafetensorsEntry> parse_safetensors(std::span<const std::byte> file, std::string_view what);

/// A mapped safetensors file. Views point into the mapping; a tensor that is not aligned for its dtype there
/// (the format does not demand it) is copied when the file is opened.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::size_t file_bytes() const { return file_.bytes().size(); }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  bool has(std::string_view name) const { return index_.count(name) != 0; }

  /// Nothing when there is no such tensor. Errors: a dtype other than F32, BF16 and F16, more than 4
  /// dimensions.
  std::optional<TensorView> find(std::string_view name) const;

  /// Drops the resident pages of a view of this file; false when the view is not of this file.
  bool release(const TensorView& view) const;

 private:
  void copy_misaligned();

  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // name -> entry; keys live in entries_
  std::unordered_map<std::size_t, Buffer> copies_;           // entry -> aligned copy
};

}  // namespace asynct
