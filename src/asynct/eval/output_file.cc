#include "asynct/eval/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "asynct/base/error.h"

namespace asynct {

namespace fs = std::filesystem;

std::string resolve_output(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel's
  std::error_code error;
  fs::path at = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(at, error)); ++i) {
    const fs::path next = fs::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / next;  // the whole of `next` when that is absolute
  }
  const fs::path canonical = fs::weakly_canonical(fs::absolute(at, error), error);
  return error ? path : canonical.string();
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)), target_(resolve_output(path_)) {
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  check(exists || errno == ENOENT);  // links in a circle, a directory that may not be searched
  if (exists && S_ISDIR(status.st_mode)) fail(path_, ": is a directory, expected a file to write");
  const bool direct = exists && !S_ISREG(status.st_mode);
  if (!direct) temporary_ = cat(target_, ".tmp", ::getpid());
  file_ = std::fopen(direct ? path_.c_str() : temporary_.c_str(), "wb");
  check(file_ != nullptr);
  if (!direct && exists)
    ::fchmod(::fileno(file_), status.st_mode & 07777);  // a file system may not have modes
}

OutputFile::~OutputFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::check(bool ok) {
  failed_ = failed_ || !ok;
  if (!ok) fail(path_, ": cannot write: ", std::strerror(errno));
}

void OutputFile::write(std::string_view text) {
  check(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

void OutputFile::commit() {
  if (failed_) fail(path_, ": not whole, a write has failed");
  check(std::fflush(file_) == 0);
  if (!temporary_.empty()) check(::fsync(::fileno(file_)) == 0);
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  check(closed);
  if (temporary_.empty()) return;
  check(std::rename(temporary_.c_str(), target_.c_str()) == 0);
  temporary_.clear();
}

}  // namespace asynct
