#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asynct/eval/responses.h"

namespace asynct {

/// Responses of an unfinished run, on disk, so that `--resume` asks the model only for the rest. One JSON
/// object a line: the model's key, then each task with a key over all its requests, then the responses in the
/// order they came. A run with another model, precision, kernel family, prompt or limit has other keys and is
/// refused, as is a second run on a file that another process has open.
class ProgressFile {
 public:
  /// With `resume`, reads `path` when it exists; else starts it anew. Errors: another model's file, not a
  /// file of this kind, another run's at work, cannot write.
  ProgressFile(std::string path, const std::string& model_key, bool resume);

  /// Starts a task of responses.size() requests and fills in those known from before. Error: the file knows
  /// the task with other requests.
  void begin(const std::string& task, const std::string& key, std::vector<Response>& responses);
  /// Adds one response to the task begun last. Written through at least every second.
  void add(std::size_t request, const Response& response);
  void flush();

  const std::string& path() const { return path_; }

  /// Removes the file at `path`, if there is one and no other run is at work on it.
  static void remove(const std::string& path);

 private:
  using Clock = std::chrono::steady_clock;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  struct Task {
    std::string key;
    std::map<std::size_t, Response> responses;
  };
  void open_locked();
  bool read(const std::string& model_key);  // false: nothing was written yet
  void write(const std::string& line);

  std::string path_;
  std::map<std::string, Task> known_;
  File file_;  // open for appending, locked
  Clock::time_point flushed_ = Clock::now();
};

}  // namespace asynct
