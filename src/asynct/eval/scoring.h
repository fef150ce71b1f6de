#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/eval/metrics.h"
#include "asynct/eval/responses.h"
#include "asynct/eval/task_run.h"

namespace asynct {

/// A document's responses through one filter, and what its metrics make of them.
struct DocumentScore {
  std::vector<std::string> filtered;  // generate_until: the filtered text
  std::vector<MetricValue> values;    // by metric of the task
};

/// The filters of a task, "none" when it lists none.
std::span<const Filter> filters_of(const TaskSpec& task);

/// Scores document `index` of `run`. `responses` are those of the whole run, all done.
DocumentScore score_document(const TaskRun& run, std::size_t index, const Filter& filter,
                             std::span<const Response> responses);

/// Sum of the log-probabilities of a document's requests, in order (loglikelihood_rolling: over its windows).
double summed_logprob(const RequestRange& range, std::span<const Response> responses);

struct Score {
  Metric metric;
  std::string filter;
  double value;
  std::optional<double> error;  // standard error
};

struct TaskResult {
  const TaskSpec* task = nullptr;
  int shots = 0;
  std::size_t original = 0;   // documents there are
  std::size_t effective = 0;  // documents scored
  std::vector<Score> scores;
  double seconds = 0;        // of this run, like the tokens
  std::int64_t tokens = 0;   // rows through the model
  std::size_t resumed = 0;   // responses that were there from an interrupted run
  std::string samples_hash;  // over the samples' hashes; empty without --log-samples
};

/// All documents of `run`, by filter and metric.
std::vector<Score> score_task(const TaskRun& run, std::span<const Response> responses, ThreadPool& pool);

struct GroupResult {
  const TaskGroup* group = nullptr;
  std::optional<int> shots;  // when all tasks have the same
  std::size_t documents = 0;
  std::vector<Score> scores;
};

/// The average over the tasks of `group` among `results`.
GroupResult score_group(const TaskGroup& group, std::span<const TaskResult> results);

}  // namespace asynct
