#include "asynct/eval/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "asynct/base/error.h"

namespace asynct {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::is_directory(status)) fail(path_, ": is a directory, expected a file to write");
  const bool direct = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (!direct) temporary_ = cat(path_, ".tmp", ::getpid());
  file_ = std::fopen(direct ? path_.c_str() : temporary_.c_str(), "wb");
  check(file_ != nullptr);
}

OutputFile::~OutputFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::check(bool ok) const {
  if (!ok) fail(path_, ": cannot write: ", std::strerror(errno));
}

void OutputFile::write(std::string_view text) {
  check(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

void OutputFile::commit() {
  check(std::fflush(file_) == 0);
  if (!temporary_.empty()) check(::fsync(::fileno(file_)) == 0);
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  check(closed);
  if (temporary_.empty()) return;
  check(std::rename(temporary_.c_str(), path_.c_str()) == 0);
  temporary_.clear();
}

}  // namespace asynct
