#include "asynct/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "asynct/base/error.h"

namespace asynct {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail(path, ": cannot open: ", std::strerror(errno));
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::size_t regular_file_size(const FileDescriptor& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail(path, ": cannot stat: ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(path, ": not a regular file");
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const FileDescriptor file(path);
  size_ = regular_file_size(file, path);
  if (size_ == 0) return;  // mmap refuses an empty range; an empty span is right
  void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(path, ": cannot map ", size_, " bytes: ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (page - reinterpret_cast<std::uintptr_t>(part.data()) % page) % page;
  if (part.size() < begin + page) return;  // no whole page
  ::madvise(const_cast<std::byte*>(part.data() + begin), (part.size() - begin) / page * page, MADV_DONTNEED);
}

std::string read_file(const std::string& path, std::size_t limit) {
  const FileDescriptor file(path);
  const std::size_t size = regular_file_size(file, path);
  if (size > limit) fail(path, ": ", size, " bytes, more than the limit of ", limit);
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.get(), text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, ": cannot read: ", std::strerror(errno));
    if (got == 0) fail(path, ": ended after ", done, " of ", size, " bytes");
    done += static_cast<std::size_t>(got);
  }
  return text;
}

}  // namespace asynct
