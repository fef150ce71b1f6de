#include "asynct/model/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "asynct/base/error.h"
#include "asynct/base/json.h"

namespace asynct {
namespace {

constexpr std::size_t kDataAlign = 64;

std::string_view dtype_text(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    default:
      fail("dtype ", name(dtype), " cannot be written, expected fp32, bf16 or fp16");
  }
}

/// One entry of the header as JSON text. Written by hand: a JSON object looks keys up one by one.
std::string entry_text(const SafetensorsSpec& spec, std::size_t begin, std::size_t end) {
  std::string shape;
  for (int axis = 0; axis < spec.shape.rank(); ++axis) shape += cat(axis == 0 ? "" : ",", spec.shape[axis]);
  return cat(dump_json(spec.name), R"(:{"dtype":")", dtype_text(spec.dtype), R"(","shape":[)", shape,
             R"(],"data_offsets":[)", begin, ",", end, "]}");
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<SafetensorsSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path) {
  std::string header = cat(R"({"__metadata__":)", dump_json(Json(metadata)));
  std::size_t data_bytes = 0;
  for (const SafetensorsSpec& spec : tensors) {
    const std::size_t bytes = static_cast<std::size_t>(spec.shape.elements()) * size_of(spec.dtype);
    header += cat(",", entry_text(spec, data_bytes, data_bytes + bytes));
    begin_.push_back(data_bytes);
    data_bytes += bytes;
  }
  header += "}";
  const std::uint64_t length = (header.size() + 8 + kDataAlign - 1) / kDataAlign * kDataAlign - 8;
  header.resize(length, ' ');
  const std::size_t data_begin = 8 + length;
  for (std::size_t& begin : begin_) begin += data_begin;
  file_bytes_ = data_begin + data_bytes;

  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) fail(path, ": cannot create: ", std::strerror(errno));
  try {
    if (const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(file_bytes_)); error != 0)
      fail(path, ": cannot reserve ", file_bytes_, " bytes: ", std::strerror(error));
    write_at(0, std::as_bytes(std::span(&length, 1)));
    write_at(8, std::as_bytes(std::span(header)));
  } catch (...) {  // a constructor that throws runs no destructor
    ::close(fd_);
    ::unlink(path.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(path_.c_str());
}

void SafetensorsWriter::write(std::size_t index, std::size_t offset, std::span<const std::byte> data) {
  write_at(begin_[index] + offset, data);
}

void SafetensorsWriter::write_at(std::size_t position, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(position));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, ": cannot write: ", std::strerror(errno));
    data = data.subspan(static_cast<std::size_t>(written));
    position += static_cast<std::size_t>(written);
  }
}

void SafetensorsWriter::finish() {
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) fail(path_, ": cannot close: ", std::strerror(errno));
  finished_ = true;
}

}  // namespace asynct
