#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asynct/model/safetensors.h"

namespace asynct {

/// The tensors of a checkpoint directory: model.safetensors, or the shards that model.safetensors.index.json
/// names. Everything is mapped, nothing is read ahead.
class Checkpoint {
 public:
  /// Errors: neither or both of the two files, a broken file, an index whose shards lie outside the directory
  /// or do not hold exactly the tensors that it says.
  explicit Checkpoint(const std::string& dir);

  const std::string& dir() const { return dir_; }
  std::size_t file_bytes() const;

  /// All names, sorted.
  std::vector<std::string> names() const;

  /// Nothing when there is no such tensor. Errors as of SafetensorsFile::find.
  std::optional<TensorView> find(std::string_view name) const;

  /// Error when the tensor is missing or of another shape, with both shapes.
  TensorView tensor(std::string_view name, const Shape& expected) const;

  /// Drops the resident pages of a view (they can be read again): called once its weights have been packed.
  void release(const TensorView& view) const;

 private:
  void open_shards(const std::string& index_path);

  std::string dir_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::size_t> file_of_;  // tensor -> file
};

}  // namespace asynct
