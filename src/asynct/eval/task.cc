#include "asynct/eval/task.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/eval/tasks.h"

namespace asynct {

const MetricInfo& info(Metric metric) {
  static constexpr std::array<MetricInfo, 7> kInfo = {{{"acc", "mean", true},
                                                       {"acc_norm", "mean", true},
                                                       {"exact_match", "mean", true},
                                                       {"perplexity", "perplexity", false},
                                                       {"word_perplexity", "weighted_perplexity", false},
                                                       {"byte_perplexity", "weighted_perplexity", false},
                                                       {"bits_per_byte", "bits_per_byte", false}}};
  return kInfo[static_cast<std::size_t>(metric)];
}

std::string_view name(OutputType type) {
  static constexpr std::array<std::string_view, 4> kNames = {"multiple_choice", "generate_until",
                                                             "loglikelihood", "loglikelihood_rolling"};
  return kNames[static_cast<std::size_t>(type)];
}

std::span<const TaskSpec> all_tasks() {
  static const std::vector<TaskSpec> tasks = [] {
    std::vector<TaskSpec> all;
    add_arithmetic_tasks(all);
    add_choice_tasks(all);
    add_mmlu_tasks(all);
    add_language_modeling_tasks(all);
    return all;
  }();
  return tasks;
}

std::span<const TaskGroup> all_groups() {
  static const std::vector<TaskGroup> groups = mmlu_groups();
  return groups;
}

namespace {

template <class Entry>
const Entry* find(std::span<const Entry> entries, std::string_view name) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

/// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

[[noreturn]] void unknown_task(std::string_view name) {
  std::string nearest, listed;
  std::size_t best = 4;  // farther than three letters is no typing error
  const auto offer = [&](const std::string& candidate, bool list) {
    if (const std::size_t d = distance(name, candidate); d < best) best = d, nearest = candidate;
    if (list) listed += cat(listed.empty() ? "" : ", ", candidate);
  };
  for (const TaskSpec& task : all_tasks()) offer(task.name, task.subset.empty());
  for (const TaskGroup& group : all_groups()) offer(group.name, true);
  fail("unknown task \"", name, "\"", nearest.empty() ? "." : cat("; did you mean ", nearest, "?"),
       " Tasks: ", listed, ", and each mmlu_SUBJECT");
}

template <class Entry>
void add_once(std::vector<const Entry*>& list, const Entry* entry) {
  if (std::find(list.begin(), list.end(), entry) == list.end()) list.push_back(entry);
}

void select(TaskSelection& selection, const std::string& name, const std::string& label) {
  if (const TaskGroup* group = find(all_groups(), name)) {
    add_once(selection.groups, group);
    for (const std::string& child : group->children) select(selection, child, label);
    return;
  }
  const TaskSpec* task = find(all_tasks(), name);
  if (task == nullptr) unknown_task(name);
  const std::size_t before = selection.tasks.size();
  add_once(selection.tasks, task);
  if (selection.tasks.size() > before) selection.labels.push_back(label);
}

}  // namespace

TaskSelection select_tasks(std::span<const std::string> names) {
  if (names.empty()) fail("no task named");
  TaskSelection selection;
  for (const std::string& name : names) select(selection, name, name);
  return selection;
}

std::vector<const TaskSpec*> members(const TaskGroup& group, std::span<const TaskSpec* const> tasks) {
  std::vector<const TaskSpec*> leaves;
  for (const std::string& child : group.children) {
    if (const TaskGroup* inner = find(all_groups(), child)) {
      const auto below = members(*inner, tasks);
      leaves.insert(leaves.end(), below.begin(), below.end());
    } else if (const auto found = std::find_if(tasks.begin(), tasks.end(),
                                               [&](const TaskSpec* task) { return task->name == child; });
               found != tasks.end()) {
      leaves.push_back(*found);
    }
  }
  return leaves;
}

}  // namespace asynct
