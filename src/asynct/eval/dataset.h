#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asynct/eval/task.h"

namespace asynct {

/// The data directory: finds, unpacks and reads the files of tasks. Files are kept, so that tasks that share
/// one (the subjects of mmlu) read it once.
class DataDirectory {
 public:
  explicit DataDirectory(std::string path);
  ~DataDirectory();

  /// $ASYNCT_DATA, ./data, or data/ next to or above the program, whichever comes first. Error: none exists.
  static std::string find_default();

  /// Error: a file that the task needs is missing, the one that shots come from only when `shots`. Nothing is
  /// read.
  void require_files(const TaskSpec& task, bool shots) const;

  /// The first `most` documents of a task. Errors: no such file, a bad line (file:line in the message), no
  /// documents.
  std::vector<Example> documents(const TaskSpec& task,
                                 std::size_t most = std::numeric_limits<std::size_t>::max());

  /// The pool that its shots come from.
  std::vector<Example> shot_pool(const TaskSpec& task);

  /// How many documents() and shot_pool() give, without rendering them.
  std::size_t count(const TaskSpec& task);
  std::size_t shot_count(const TaskSpec& task);

 private:
  struct File;
  using Candidates = std::vector<std::string>;
  /// The first candidate that is there. Error: none is.
  std::string find(const Candidates& candidates, const TaskSpec& task, std::string_view what) const;
  const File& open(const Candidates& candidates, const TaskSpec& task, std::string_view what);
  const File& documents_file(const TaskSpec& task);
  const File& shots_file(const TaskSpec& task);

  std::string path_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace asynct
