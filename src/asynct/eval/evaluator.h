#pragma once

#include <optional>
#include <string>
#include <vector>

#include "asynct/engine/language_model.h"
#include "asynct/eval/encoding.h"
#include "asynct/eval/scoring.h"

namespace asynct {

struct EvalOptions {
  std::vector<std::string> tasks;
  std::string data;             // directory; empty: DataDirectory::find_default()
  std::optional<double> limit;  // documents a task; below 1: that share of them, rounded up
  std::optional<int> shots;     // instead of each task's own number
  BosMode bos = BosMode::tokenizer;
  bool truncate = false;
  int threads = 1;        // for tokenisation
  std::string samples;    // path of the samples file; empty: none
  std::string progress;   // path of the progress file; empty: none
  bool resume = false;    // continue from the progress file
  std::string model_key;  // what the progress file knows the model by
};

struct EvalResult {
  std::vector<TaskResult> tasks;    // finished ones, in running order
  std::vector<GroupResult> groups;  // of which all tasks are finished; parents first
  bool interrupted = false;
  std::string stopped_in;  // the task that was running, when interrupted
  double seconds = 0;
};

/// Runs the tasks one after the other; when interrupted (InterruptGuard), returns the finished ones. The
/// samples file holds the finished tasks. The progress file stays for `resume`: whoever has stored the result
/// calls remove_progress(). Errors: options, data, prompts too long, files that cannot be written.
EvalResult evaluate(LanguageModel& model, const EvalOptions& options);

/// The run is over and its results are safe: its progress file goes. Nothing when there is none.
void remove_progress(const EvalOptions& options);

}  // namespace asynct
