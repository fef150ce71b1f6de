#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace asynct {

/// A file that appears whole or not at all: text goes to a temporary file beside it, commit() renames that.
/// Without commit() the temporary file is removed. A target that is no regular file (/dev/stdout, a pipe) is
/// written directly. Errors name the file and the reason (no such directory, no space left).
class OutputFile {
 public:
  /// Opens the temporary file, so that a bad path is known before the work starts.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  void check(bool ok) const;

  std::string path_;
  std::string temporary_;  // empty: written directly
  std::FILE* file_ = nullptr;
};

}  // namespace asynct
