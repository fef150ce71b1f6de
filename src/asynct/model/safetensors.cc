#include "asynct/model/safetensors.h"

#include <cstring>

#include "asynct/base/error.h"
#include "asynct/base/log.h"

namespace asynct {
namespace {

std::optional<DType> supported_dtype(std::string_view dtype) {
  if (dtype == "F32") return DType::f32;
  if (dtype == "BF16") return DType::bf16;
  if (dtype == "F16") return DType::f16;
  return {};
}

Shape to_shape(const std::vector<std::int64_t>& dims, const std::string& what) {
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    case 4:
      return {dims[0], dims[1], dims[2], dims[3]};
    default:
      fail(what, ": ", dims.size(), " dimensions, at most 4 are supported");
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), entries_(parse_safetensors(file_.bytes(), path)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
  copy_misaligned();
}

void SafetensorsFile::copy_misaligned() {
  std::size_t copied = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const SafetensorsEntry& entry = entries_[i];
    const auto dtype = supported_dtype(entry.dtype);
    if (!dtype || entry.begin % size_of(*dtype) == 0) continue;
    Buffer copy(entry.end - entry.begin);
    if (copy.size() > 0) std::memcpy(copy.data(), file_.bytes().data() + entry.begin, copy.size());
    copied += copy.size();
    copies_.emplace(i, std::move(copy));
  }
  if (copied > 0)
    log(LogLevel::warning, cat(path(), ": ", copied,
                               " bytes of tensors are not aligned in the file and were copied; "
                               "writing it again with aligned data saves that memory"));
}

std::optional<TensorView> SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) return {};
  const SafetensorsEntry& entry = entries_[it->second];
  const std::string what = cat(path(), ": tensor \"", name, "\"");
  const auto dtype = supported_dtype(entry.dtype);
  if (!dtype) fail(what, ": dtype ", entry.dtype, " is not supported, expected F32, BF16 or F16");
  const auto copy = copies_.find(it->second);
  const std::byte* const data =
      copy != copies_.end() ? copy->second.data() : file_.bytes().data() + entry.begin;
  return TensorView{data, *dtype, to_shape(entry.shape, what)};
}

bool SafetensorsFile::release(const TensorView& view) const {
  const auto* const data = static_cast<const std::byte*>(view.data);
  const auto file = file_.bytes();
  if (data < file.data() || data >= file.data() + file.size()) return false;
  file_.release({data, view.bytes()});
  return true;
}

}  // namespace asynct
