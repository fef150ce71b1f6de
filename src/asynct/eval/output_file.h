#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace asynct {

/// The path that a file written as `path` gets: links are followed, also one to a file that is yet to be
/// made. Two names of one file give one path.
std::string resolve_output(const std::string& path);

/// A file that appears whole or not at all: text goes to a temporary file beside it, commit() renames that.
/// Without commit() the temporary file is removed. A link stays, what it leads to is replaced; a file that is
/// replaced leaves its mode to the new one. A target that is no regular file (/dev/stdout, a pipe) is written
/// directly. Errors name the file and the reason (no such directory, no space left).
class OutputFile {
 public:
  /// Opens the temporary file, so that a bad path is known before the work starts.
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view text);
  /// Error also when a write has failed before.
  void commit();

 private:
  void check(bool ok);

  std::string path_;       // as given, for messages
  std::string target_;     // resolved
  std::string temporary_;  // empty: written directly
  std::FILE* file_ = nullptr;
  bool failed_ = false;
};

}  // namespace asynct
