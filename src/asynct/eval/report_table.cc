#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "asynct/eval/report.h"
#include "asynct/text/python_string.h"

namespace asynct {
namespace {

constexpr std::size_t kColumns = 11;
using TableRow = std::array<std::string, kColumns>;

std::string fixed(double value, const char* format = "%.4f") {
  char buffer[400];  // the largest double has 309 digits before the point
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string version_text(double version) {
  return version == static_cast<double>(static_cast<int>(version)) ? cat(static_cast<int>(version))
                                                                   : cat(version);
}

/// One row a score, metrics in alphabetical order; the columns that describe the task only in the first.
void add_rows(std::vector<TableRow>& rows, const std::string& shown, const std::string& version,
              const std::string& shots, std::span<const Score> scores, std::size_t documents,
              const std::string& seconds) {
  std::vector<const Score*> order;
  for (const Score& score : scores) order.push_back(&score);
  std::sort(order.begin(), order.end(), [](const Score* a, const Score* b) {
    return cat(info(a->metric).name, ",", a->filter) < cat(info(b->metric).name, ",", b->filter);
  });
  for (const Score* score : order) {
    const bool first = score == order.front();
    const std::string error = score->error ? fixed(*score->error) : "N/A";
    rows.push_back({first ? shown : "", first ? version : "", score->filter, shots,
                    std::string(info(score->metric).name), info(score->metric).higher_is_better ? "↑" : "↓",
                    fixed(score->value), "±", error, first ? cat(documents) : "", first ? seconds : ""});
  }
}

/// Rows of a group and, indented, of what is in it, in alphabetical order as lm-eval prints them.
class TableWriter {
 public:
  explicit TableWriter(const EvalResult& result) {
    for (const GroupResult& group : result.groups) groups_[group.group->name] = &group;
    for (const TaskResult& task : result.tasks) tasks_[task.task->name] = &task;
  }

  std::vector<TableRow> rows() {
    std::map<std::string, bool> inner;
    for (const auto& [name, group] : groups_)
      for (const std::string& child : group->group->children) inner[child] = true;
    for (const auto& [name, group] : groups_)
      if (!inner.contains(name)) visit(name, 0);
    for (const auto& [name, task] : tasks_)
      if (!inner.contains(name)) visit(name, 0);
    return std::move(rows_);
  }

 private:
  void visit(const std::string& name, std::size_t depth) {
    const std::string indent = depth == 0 ? "" : std::string(depth, ' ') + "- ";
    if (const auto task = tasks_.find(name); task != tasks_.end()) {
      const TaskResult& result = *task->second;
      add_rows(rows_, indent + result.task->alias, version_text(result.task->version), cat(result.shots),
               result.scores, result.effective, fixed(result.seconds, "%.1f"));
      return;
    }
    const auto group = groups_.find(name);
    if (group == groups_.end()) return;
    const GroupResult& result = *group->second;
    add_rows(rows_, indent + result.group->alias, result.group->version,
             result.shots ? cat(*result.shots) : "", result.scores, result.documents, "");
    std::vector<std::string> children = result.group->children;
    std::sort(children.begin(), children.end());
    for (const std::string& child : children) visit(child, depth + 1);
  }

  std::map<std::string, const GroupResult*> groups_;
  std::map<std::string, const TaskResult*> tasks_;
  std::vector<TableRow> rows_;
};

}  // namespace

std::string report_table(const EvalResult& result) {
  static constexpr std::array<bool, kColumns> kRight = {false, true,  false, true, false, false,
                                                        true,  false, true,  true, true};
  std::vector<TableRow> rows = TableWriter(result).rows();
  const TableRow header = {"Tasks", "Version", "Filter", "n-shot",    "Metric", "",
                           "Value", "",        "Stderr", "Documents", "Seconds"};
  std::array<std::size_t, kColumns> width{};
  for (std::size_t c = 0; c < kColumns; ++c) {
    width[c] = std::max<std::size_t>(3, header[c].size());
    if (c == 5 || c == 7) width[c] = 1;
    for (const TableRow& row : rows)
      width[c] = std::max(width[c], static_cast<std::size_t>(python::length(row[c])));
  }
  const auto line = [&](const TableRow& row) {
    std::string out = "|";
    for (std::size_t c = 0; c < kColumns; ++c) {
      const std::string pad(width[c] - static_cast<std::size_t>(python::length(row[c])), ' ');
      out += kRight[c] ? pad + row[c] : row[c] + pad;
      out += '|';
    }
    return out + "\n";
  };
  std::string out = line(header) + "|";
  for (std::size_t c = 0; c < kColumns; ++c) {
    out += std::string(width[c] - (kRight[c] ? 1 : 0), '-');
    out += kRight[c] ? ":|" : "|";
  }
  out += "\n";
  for (const TableRow& row : rows) out += line(row);
  if (std::any_of(result.tasks.begin(), result.tasks.end(),
                  [](const TaskResult& t) { return t.resumed > 0; }))
    out += "resumed: seconds are those of this run\n";
  return out;
}

}  // namespace asynct
