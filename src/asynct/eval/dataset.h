#pragma once

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

  /// All documents of a task. Errors: no such file, a bad line (file:line in the message), no documents.
  std::vector<Example> documents(const TaskSpec& task);

  /// The pool that its shots come from.
  std::vector<Example> shot_pool(const TaskSpec& task);

  /// How many documents() gives, without rendering them.
  std::size_t count(const TaskSpec& task);

  /// The file `documents` reads: "hellaswag/hellaswag_validation.jsonl".
  std::string file_of(const TaskSpec& task) const;

 private:
  struct File;
  const File& open(const std::vector<std::string>& candidates, const TaskSpec& task, std::string_view what);
  static std::vector<std::size_t> lines_of(const File& file, const TaskSpec& task);
  std::vector<Example> read(const File& file, const TaskSpec& task, Example (*reader)(const Row&));

  std::string path_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

}  // namespace asynct
