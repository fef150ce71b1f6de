#include "asynct/eval/progress_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/log.h"
#include "asynct/base/mapped_file.h"

namespace asynct {
namespace {

constexpr std::size_t kFileLimit = std::size_t{4} << 30;

std::string header(std::string_view model_key) {
  return dump_json(Json{{"asynct_eval_progress", 1}, {"model", model_key}});
}

Response response_from(const Json& line) {
  Response response;
  response.done = true;
  if (const auto text = line.find("text"); text != line.end()) {
    response.generated = true;
    response.text = text->get<std::string>();
    return response;
  }
  const Json& logprob = line.at("logprob");  // null stands for a value JSON has no number for
  response.logprob = logprob.is_null() ? std::numeric_limits<double>::quiet_NaN() : logprob.get<double>();
  response.greedy = line.at("greedy").get<bool>();
  return response;
}

/// False when another process has the lock; a file system without locks counts as nobody's.
bool try_lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

}  // namespace

ProgressFile::ProgressFile(std::string path, const std::string& model_key, bool resume)
    : path_(std::move(path)) {
  const bool exists = std::filesystem::exists(path_);
  open_locked();
  const bool resumed = exists && resume && read(model_key);
  if (exists && !resume)
    log(LogLevel::warning,
        cat("starting over: ", path_, " of an interrupted run is replaced (--resume continues it)"));
  if (resume && !resumed)
    log(LogLevel::info, cat("nothing to resume: ", path_, exists ? " is empty" : " does not exist"));
  if (resumed) return;
  if (::ftruncate(::fileno(file_.get()), 0) != 0) fail(path_, ": cannot write: ", std::strerror(errno));
  write(header(model_key));
}

void ProgressFile::open_locked() {
  file_.reset(std::fopen(path_.c_str(), "abe"));
  if (file_ == nullptr) fail(path_, ": cannot write: ", std::strerror(errno));
  if (!try_lock(::fileno(file_.get())))
    fail(path_, ": another run is writing it; wait for that to end, or give this one another --output");
}

void ProgressFile::remove(const std::string& path) {
  const File file(std::fopen(path.c_str(), "r+be"));  // not made when absent
  if (file != nullptr && try_lock(::fileno(file.get()))) ::unlink(path.c_str());
}

bool ProgressFile::read(const std::string& model_key) {
  const std::string text = read_file(path_, kFileLimit);
  // A crash or a full disk may have cut the last line.
  const std::size_t whole = text.rfind('\n') + 1;
  if (header(model_key).starts_with(text)) return false;
  if (whole == 0) fail(path_, ": not the progress file of a run");
  std::string_view rest = std::string_view(text).substr(0, whole);
  Task* task = nullptr;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    if (number == 1) {
      if (!line.starts_with(R"({"asynct_eval_progress":)")) fail(path_, ": not the progress file of a run");
      if (line != header(model_key))
        fail(path_,
             ": made with another model, precision, kernel family or version; remove it or run without "
             "--resume");
      continue;
    }
    try {
      const Json value = parse_json(line, cat(path_, ":", number));
      if (value.contains("task")) {
        task = &known_[value.at("task").get<std::string>()];
        task->key = value.at("key").get<std::string>();
      } else if (task != nullptr) {
        task->responses[value.at("request").get<std::size_t>()] = response_from(value);
      }
    } catch (const nlohmann::json::exception& error) {
      fail(path_, ":", number, ": ", error.what());
    }
  }
  if (whole < text.size()) std::filesystem::resize_file(path_, whole);
  return true;
}

void ProgressFile::begin(const std::string& task, const std::string& key, std::vector<Response>& responses) {
  const auto known = known_.find(task);
  if (known != known_.end()) {
    if (known->second.key != key)
      fail(path_, ": has ", task, " with other requests (shots, limit, data, BOS or truncation changed); ",
           "use the same options, or run without --resume");
    for (auto& [index, response] : known->second.responses)
      if (index < responses.size()) responses[index] = std::move(response);
    known->second.responses.clear();
  }
  write(dump_json(Json{{"task", task}, {"key", key}}));
}

void ProgressFile::add(std::size_t request, const Response& response) {
  Json line{{"request", request}};
  if (response.generated) {
    line["text"] = response.text;
  } else {
    line["logprob"] = response.logprob;
    line["greedy"] = response.greedy;
  }
  write(dump_json(line));
  if (const auto now = Clock::now(); now - flushed_ > std::chrono::seconds(1)) {
    flush();
    flushed_ = now;
  }
}

void ProgressFile::write(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fputc('\n', file_.get()) == EOF)
    fail(path_, ": cannot write: ", std::strerror(errno));
}

void ProgressFile::flush() {
  if (std::fflush(file_.get()) != 0) fail(path_, ": cannot write: ", std::strerror(errno));
}

}  // namespace asynct
