#include "asynct/eval/dataset.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string_view>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/base/mapped_file.h"
#include "asynct/eval/xz.h"
#include "asynct/text/python_string.h"
#include "asynct/text/utf8.h"

namespace asynct {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileLimit = std::size_t{1} << 30;

/// The path on disk of `name` under `directory`, plain or packed; empty when there is neither.
std::string on_disk(const std::string& directory, const std::string& name) {
  for (const std::string_view suffix : {"", ".xz"}) {
    std::string path = cat(directory, "/", name, suffix);
    if (fs::exists(path)) return path;
  }
  return {};
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

/// Whether a line of WikiText opens a page: a title of level 1, " = Title = ".
bool is_page_title(std::string_view line) {
  const std::string_view title = python::strip(line);
  return title.starts_with("= ") && title.ends_with(" =") && !title.starts_with("= =");
}

/// Pages of a raw WikiText file. Lines are joined by line feeds, so a page does not end in the one that the
/// next title follows.
std::vector<std::string> split_pages(std::string_view text) {
  std::vector<std::string> pages;
  std::string page;
  bool empty = true;
  const auto finish = [&] {
    if (!python::strip(page).empty()) pages.push_back(page);
    page.clear();
    empty = true;
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (is_page_title(line)) finish();
    if (!empty) page += '\n';
    page += line;
    empty = false;
    at = end + 1;
  }
  finish();
  return pages;
}

constexpr std::string_view kDocuments = "documents";
constexpr std::string_view kShots = "documents to draw shots from";

const std::vector<std::string>& shot_files(const TaskSpec& task) {
  return task.shot_files.empty() ? task.files : task.shot_files;
}

}  // namespace

/// The documents of one file as JSON, by subject when they have one.
struct DataDirectory::File {
  struct Line {
    Json value;
    std::size_t number;
  };
  std::string name;  // as errors show it
  std::vector<Line> lines;
  std::map<std::string, std::vector<std::size_t>> by_subject;

  void add(Json value, std::size_t number) {
    if (const auto subject = value.find("subject"); subject != value.end() && subject->is_string())
      by_subject[subject->get<std::string>()].push_back(lines.size());
    lines.push_back({std::move(value), number});
  }

  void read_lines(std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::string_view line = next_line(text);
      if (python::strip(line).empty()) continue;
      if (!is_valid_utf8(line)) fail(name, ":", number, ": not valid UTF-8");
      Json value = parse_json(line, cat(name, ":", number));
      if (!value.is_object()) fail(name, ":", number, ": expected an object, found ", value.type_name());
      add(std::move(value), number);
    }
  }

  void read_pages(std::string_view text) {
    if (!is_valid_utf8(text)) fail(name, ": not valid UTF-8");
    for (std::string& page : split_pages(text)) add(Json{{"page", std::move(page)}}, lines.size() + 1);
  }

  /// The documents of `task`: all, or those with its subject. Error: none.
  std::vector<std::size_t> lines_of(const TaskSpec& task) const {
    std::vector<std::size_t> found;
    if (task.subset.empty()) {
      found.resize(lines.size());
      std::iota(found.begin(), found.end(), std::size_t{0});
    } else if (const auto of_subject = by_subject.find(task.subset); of_subject != by_subject.end()) {
      found = of_subject->second;
    }
    if (found.empty())
      fail("task ", task.name, ": ", name, " has no documents",
           task.subset.empty() ? "" : cat(" with subject \"", task.subset, "\""));
    return found;
  }

  std::vector<Example> read(const TaskSpec& task, Example (*reader)(const Row&), std::size_t most) const {
    std::vector<std::size_t> wanted = lines_of(task);
    wanted.resize(std::min(wanted.size(), most));
    std::vector<Example> examples;
    for (const std::size_t index : wanted) {
      const Line& line = lines[index];
      Example example = reader(Row(line.value, cat(name, ":", line.number)));
      if (example.logged_target.empty()) example.logged_target = example.target;
      example.document = dump_json(line.value);
      examples.push_back(std::move(example));
    }
    return examples;
  }
};

DataDirectory::DataDirectory(std::string path) : path_(std::move(path)) {
  if (!fs::is_directory(path_)) fail("data directory ", path_, " does not exist");
}

DataDirectory::~DataDirectory() = default;

std::string DataDirectory::find_default() {
  std::vector<fs::path> candidates;
  if (const char* set = std::getenv("ASYNCT_DATA"); set != nullptr && *set != '\0') return set;
  candidates.emplace_back("data");
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* relative : {"data", "../data", "../share/asynct/data"})
    candidates.push_back(program / relative);
  for (const fs::path& candidate : candidates)
    if (fs::is_directory(candidate / "gsm8k")) return candidate.lexically_normal().string();
  fail("no evaluation data: neither ./data nor data/ beside or above the program; name it with --data DIR");
}

std::string DataDirectory::find(const Candidates& candidates, const TaskSpec& task,
                                std::string_view what) const {
  for (const std::string& name : candidates)
    if (files_.contains(name) || !on_disk(path_, name).empty()) return name;
  std::string listed;
  for (const std::string& name : candidates)
    listed += cat(listed.empty() ? "" : " or ", path_, "/", name, "[.xz]");
  fail("task ", task.name, ": no ", what, ": expected ", listed);
}

const DataDirectory::File& DataDirectory::open(const Candidates& candidates, const TaskSpec& task,
                                               std::string_view what) {
  const std::string name = find(candidates, task, what);
  if (const auto known = files_.find(name); known != files_.end()) return *known->second;
  const std::string path = on_disk(path_, name);
  auto file = std::make_unique<File>();
  file->name = path;
  const std::string text =
      path.ends_with(".xz") ? read_xz_file(path, kFileLimit) : read_file(path, kFileLimit);
  if (name.ends_with(".raw"))
    file->read_pages(text);
  else
    file->read_lines(text);
  return *files_.emplace(name, std::move(file)).first->second;
}

const DataDirectory::File& DataDirectory::documents_file(const TaskSpec& task) {
  return open(task.files, task, kDocuments);
}

const DataDirectory::File& DataDirectory::shots_file(const TaskSpec& task) {
  return open(shot_files(task), task, kShots);
}

void DataDirectory::require_files(const TaskSpec& task, bool shots) const {
  find(task.files, task, kDocuments);
  if (shots) find(shot_files(task), task, kShots);
}

std::size_t DataDirectory::count(const TaskSpec& task) { return documents_file(task).lines_of(task).size(); }

std::size_t DataDirectory::shot_count(const TaskSpec& task) { return shots_file(task).lines_of(task).size(); }

std::vector<Example> DataDirectory::documents(const TaskSpec& task, std::size_t most) {
  return documents_file(task).read(task, task.read, most);
}

std::vector<Example> DataDirectory::shot_pool(const TaskSpec& task) {
  return shots_file(task).read(task, task.read_shot != nullptr ? task.read_shot : task.read,
                               std::numeric_limits<std::size_t>::max());
}

}  // namespace asynct
