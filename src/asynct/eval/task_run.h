#pragma once

#include <optional>
#include <string>
#include <vector>

#include "asynct/base/thread_pool.h"
#include "asynct/engine/language_model.h"
#include "asynct/eval/dataset.h"
#include "asynct/eval/encoding.h"
#include "asynct/eval/responses.h"
#include "asynct/eval/task.h"

namespace asynct {

/// What of a task is run and how it meets the model's limits.
struct TaskRunOptions {
  std::size_t documents = 0;  // the first so many
  int shots = 0;
  std::int64_t max_length = 0;  // of the model
  bool truncate = false;  // cut prompts that are too long on the left, as lm-eval does, instead of an Error
};

/// One document's requests: `count` of them from `first` on.
struct RequestRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// A task with its prompts as tokens, ready for the model.
struct TaskRun {
  const TaskSpec* task = nullptr;
  int shots = 0;
  std::vector<Example> documents;
  std::vector<std::vector<std::string>> contexts;  // by document: one, or one a choice
  std::vector<RequestRange> ranges;                // by document
  std::vector<ScoreRequest> scores;                // one of these two holds the requests
  std::vector<GenerateRequest> generations;

  std::size_t requests() const { return scores.size() + generations.size(); }
};

/// Errors: data (DataDirectory), a prompt longer than the model's context, a continuation without tokens.
TaskRun prepare(const TaskSpec& task, DataDirectory& data, const PromptEncoder& encoder, ThreadPool& pool,
                const TaskRunOptions& options);

/// The shots a task runs with when `asked` are asked for, if any: a rolling one has none.
int shots_of(const TaskSpec& task, std::optional<int> asked);

/// A key over everything the model is asked.
std::string request_key(const TaskRun& run);

}  // namespace asynct
