#include "asynct/model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "asynct/base/error.h"
#include "asynct/base/json.h"

namespace asynct {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{16} << 20;

/// A shard is a plain file name: an index must not reach outside its directory.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

bool exists(const std::string& path) {
  std::error_code unreadable;  // opening it will say why
  return fs::exists(path, unreadable) || unreadable;
}

/// tensor name -> shard file name
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const Json json = parse_json_file(path, kMaxIndexBytes);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail(path, ": weight_map is missing, expected an object of tensor names and file names");
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>()))
      fail(path, ": weight_map[\"", name, "\"] is ", dump_json(file),
           ", expected the name of a file in the directory");
    map.emplace(name, file.get<std::string>());
  }
  return map;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& dir) : dir_(dir) {
  const std::string single = dir + "/model.safetensors";
  const std::string index = dir + "/model.safetensors.index.json";
  const bool has_single = exists(single);
  const bool has_index = exists(index);
  if (has_single && has_index)
    fail(dir,
         ": both model.safetensors and model.safetensors.index.json are present; remove the one that is "
         "stale");
  if (has_index) {
    open_shards(index);
    return;
  }
  if (!has_single)
    fail(dir, ": neither model.safetensors nor model.safetensors.index.json is present",
         exists(dir + "/pytorch_model.bin") ? " (pytorch_model.bin is not read: convert it to safetensors)"
                                            : "");
  files_.emplace_back(single);
  for (const SafetensorsEntry& entry : files_[0].entries()) file_of_.emplace(entry.name, 0);
}

void Checkpoint::open_shards(const std::string& index_path) {
  const auto weight_map = read_weight_map(index_path);
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file] : weight_map)
    if (opened.try_emplace(file, files_.size()).second) files_.emplace_back(dir_ + "/" + file);

  for (const auto& [name, file] : weight_map) file_of_.emplace(name, opened[file]);
  std::size_t found = 0;
  for (const auto& [file, i] : opened) {
    for (const SafetensorsEntry& entry : files_[i].entries()) {
      const auto it = weight_map.find(entry.name);
      if (it == weight_map.end() || it->second != file)
        fail(files_[i].path(), ": tensor \"", entry.name, "\" is not in the index (",
             it == weight_map.end() ? "no entry" : "its entry names " + it->second, ")");
      ++found;
    }
  }
  if (found == weight_map.size()) return;
  for (const auto& [name, i] : file_of_)
    if (!files_[i].has(name))
      fail(files_[i].path(), ": tensor \"", name, "\" is missing, but the index says it is there");
}

std::size_t Checkpoint::file_bytes() const {
  std::size_t total = 0;
  for (const SafetensorsFile& file : files_) total += file.file_bytes();
  return total;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(file_of_.size());
  for (const auto& [name, file] : file_of_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<TensorView> Checkpoint::find(std::string_view name) const {
  const auto it = file_of_.find(std::string(name));
  if (it == file_of_.end()) return {};
  return files_[it->second].find(name);
}

TensorView Checkpoint::tensor(std::string_view name, const Shape& expected) const {
  const auto view = find(name);
  if (!view) fail(dir_, ": tensor \"", name, "\" is missing, expected shape ", expected.to_string());
  if (view->shape != expected)
    fail(dir_, ": tensor \"", name, "\" has shape ", view->shape.to_string(), ", expected ",
         expected.to_string());
  return *view;
}

void Checkpoint::release(const TensorView& view) const {
  for (const SafetensorsFile& file : files_)
    if (file.release(view)) return;
}

}  // namespace asynct
