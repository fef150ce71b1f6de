#pragma once

#include <exception>
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
  int threads = 1;        // for tokenisation and the bootstrap
  std::string samples;    // path of the samples file; empty: none
  std::string progress;   // path of the progress file; empty: none
  bool resume = false;    // continue from the progress file
  std::string model_key;  // what the progress file knows the model by
};

struct EvalResult {
  std::vector<TaskResult> tasks;    // finished ones, in running order
  std::vector<GroupResult> groups;  // of which all tasks are finished; parents first
  bool interrupted = false;
  std::exception_ptr failure;  // what ended a task after the first
  std::string stopped_in;      // the task that was running, when interrupted or failed
  double seconds = 0;
};

/// What can be told without a model. Errors: unknown tasks, numbers out of range, `resume` without a progress
/// file, data that is not there.
void check_options(const EvalOptions& options);

/// Runs the tasks one after the other; when interrupted (InterruptGuard), returns the finished ones. The
/// samples file holds the finished tasks. The progress file stays for `resume`: whoever has stored the result
/// calls remove_progress(). Errors: those of check_options(), bad data, prompts too long, files that cannot
/// be written. Once a task is finished, an exception in a later one is not thrown but returned as
/// EvalResult::failure, with the finished tasks.
EvalResult evaluate(LanguageModel& model, const EvalOptions& options);

/// The run is over and its results are safe: its progress file goes. Nothing when there is none.
void remove_progress(const EvalOptions& options);

}  // namespace asynct
