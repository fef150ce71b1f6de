#include "asynct/eval/evaluator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/log.h"
#include "asynct/base/progress.h"
#include "asynct/base/thread_pool.h"
#include "asynct/eval/dataset.h"
#include "asynct/eval/output_file.h"
#include "asynct/eval/progress_file.h"
#include "asynct/eval/prompts.h"
#include "asynct/eval/samples.h"

namespace asynct {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// How many of `available` documents `limit` leaves.
std::size_t limited(std::size_t available, std::optional<double> limit) {
  if (!limit) return available;
  const double wanted = *limit < 1 ? std::ceil(static_cast<double>(available) * *limit) : std::floor(*limit);
  return std::min(available, static_cast<std::size_t>(wanted));
}

/// A bar over all tasks that were asked for by one name (the subjects of mmlu share one), in documents.
class LabelProgress {
 public:
  LabelProgress(const LanguageModel& model, const std::string& label, std::size_t documents)
      : model_(model),
        bar_(label, static_cast<std::int64_t>(documents)),
        tokens_before_(model.tokens_processed()) {}

  void add(std::size_t documents) {
    done_ += static_cast<std::int64_t>(documents);
    bar_.update(done_, model_.tokens_processed() - tokens_before_);
  }

 private:
  const LanguageModel& model_;
  Progress bar_;
  std::int64_t tokens_before_;
  std::int64_t done_ = 0;
};

/// Counts requests down to documents.
class DocumentCounter {
 public:
  explicit DocumentCounter(const TaskRun& run) {
    for (std::size_t document = 0; document < run.ranges.size(); ++document) {
      left_.push_back(run.ranges[document].count);
      owner_.insert(owner_.end(), run.ranges[document].count, document);
    }
  }
  /// Whether `request` was the last of its document.
  bool finish(std::size_t request) { return --left_[owner_[request]] == 0; }

 private:
  std::vector<std::size_t> left_;
  std::vector<std::size_t> owner_;  // by request
};

/// Moves the items whose response is missing to the front of a list of their own.
template <class Request>
std::vector<Request> missing(std::vector<Request>& requests, std::span<const Response> responses,
                             std::vector<std::size_t>& indices) {
  std::vector<Request> rest;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (!responses[i].done) {
      indices.push_back(i);
      rest.push_back(std::move(requests[i]));
    }
  return rest;
}

DataDirectory data_directory(const EvalOptions& options) {
  return DataDirectory(options.data.empty() ? DataDirectory::find_default() : options.data);
}

class Runner {
 public:
  /// `options` are checked.
  Runner(LanguageModel& model, const EvalOptions& options)
      : model_(model),
        options_(options),
        selection_(select_tasks(options.tasks)),
        data_(data_directory(options)),
        encoder_(model.tokenizer(), options.bos),
        pool_(options.threads) {
    // Files are read now: a bad line should not end the run when its task comes.
    for (const TaskSpec* task : selection_.tasks) {
      counts_.push_back(limited(data_.count(*task), options.limit));
      const int shots = shots_of(*task, options.shots);
      if (shots > 0) check_pool(*task, shots, data_.shot_count(*task));
    }
    if (!options.samples.empty()) samples_ = std::make_unique<OutputFile>(options.samples);
    if (!options.progress.empty())
      progress_ = std::make_unique<ProgressFile>(options.progress, options.model_key, options.resume);
  }

  EvalResult run() {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < selection_.tasks.size() && result_.stopped_in.empty();) i = run_label(i);
    if (samples_ != nullptr && !result_.tasks.empty()) commit_samples();
    add_groups();
    result_.seconds = seconds_since(start);
    return std::move(result_);
  }

 private:
  /// Runs the tasks from `first` on that share its label; returns the first that does not.
  std::size_t run_label(std::size_t first) {
    std::size_t end = first, documents = 0;
    while (end < selection_.tasks.size() && selection_.labels[end] == selection_.labels[first])
      documents += counts_[end++];
    LabelProgress bar(model_, selection_.labels[first], documents);
    for (std::size_t i = first; i < end && result_.stopped_in.empty(); ++i) try_task(i, bar);
    return end;
  }

  /// A task that fails leaves those before it to the caller.
  void try_task(std::size_t index, LabelProgress& bar) {
    try {
      run_task(index, bar);
    } catch (...) {
      if (result_.tasks.empty()) throw;
      result_.failure = std::current_exception();
      result_.stopped_in = selection_.tasks[index]->name;
    }
  }

  void commit_samples() {
    try {
      samples_->commit();
    } catch (const Error&) {
      if (!result_.failure) throw;  // else the first of two failures is told
    }
  }

  void run_task(std::size_t index, LabelProgress& bar) {
    const TaskSpec& task = *selection_.tasks[index];
    const auto start = Clock::now();
    const auto tokens_before = model_.tokens_processed();
    TaskRun run = prepare(task, data_, encoder_, pool_,
                          {.documents = counts_[index],
                           .shots = shots_of(task, options_.shots),
                           .max_length = model_.max_length(),
                           .truncate = options_.truncate});
    std::vector<Response> responses(run.requests());
    if (progress_ != nullptr) progress_->begin(task.name, request_key(run), responses);
    const auto resumed = std::count_if(responses.begin(), responses.end(), [](auto& r) { return r.done; });
    if (!ask(run, responses, bar)) {
      result_.interrupted = true;
      result_.stopped_in = task.name;
      if (progress_ != nullptr) progress_->flush();
      return;
    }
    TaskResult result;
    result.task = &task;
    result.shots = run.shots;
    result.original = data_.count(task);
    result.effective = run.documents.size();
    result.scores = score_task(run, responses, pool_);
    if (samples_ != nullptr) result.samples_hash = write_samples(*samples_, run, responses);
    result.seconds = seconds_since(start);
    result.tokens = model_.tokens_processed() - tokens_before;
    result.resumed = static_cast<std::size_t>(resumed);
    result_.tasks.push_back(std::move(result));
  }

  /// Gets the missing responses; false when interrupted.
  bool ask(TaskRun& run, std::vector<Response>& responses, LabelProgress& bar) {
    DocumentCounter documents(run);
    const auto finish = [&](std::size_t request) {
      if (documents.finish(request)) bar.add(1);
    };
    for (std::size_t i = 0; i < responses.size(); ++i)
      if (responses[i].done) finish(i);
    if (InterruptGuard::requested()) return false;

    std::vector<std::size_t> indices;
    const auto store = [&](std::size_t at, Response response) {
      response.done = true;
      if (progress_ != nullptr) progress_->add(indices[at], response);
      responses[indices[at]] = std::move(response);
      finish(indices[at]);
    };
    if (run.task->type == OutputType::generate_until) {
      const auto requests = missing(run.generations, responses, indices);
      return requests.empty() ||
             model_.generate(requests, [&](std::size_t at, const GeneratedText& generated) {
               store(at, {.generated = true, .text = generated.text});
             });
    }
    const auto requests = missing(run.scores, responses, indices);
    return requests.empty() || model_.score(requests, [&](std::size_t at, const SequenceScore& score) {
      store(at, {.logprob = score.logprob, .greedy = score.greedy});
    });
  }

  void add_groups() {
    for (const TaskGroup* group : selection_.groups)
      if (members(*group, selection_.tasks).size() == finished_of(*group))
        result_.groups.push_back(score_group(*group, result_.tasks));
  }

  std::size_t finished_of(const TaskGroup& group) const {
    std::vector<const TaskSpec*> finished;
    for (const TaskResult& task : result_.tasks) finished.push_back(task.task);
    return members(group, finished).size();
  }

  LanguageModel& model_;
  const EvalOptions& options_;
  TaskSelection selection_;
  DataDirectory data_;
  PromptEncoder encoder_;
  ThreadPool pool_;
  std::vector<std::size_t> counts_;  // documents to run, by task
  std::unique_ptr<OutputFile> samples_;
  std::unique_ptr<ProgressFile> progress_;
  EvalResult result_;
};

}  // namespace

void check_options(const EvalOptions& options) {
  if (options.limit && !(*options.limit > 0))
    fail("--limit: expected a number above 0, found ", *options.limit);
  if (options.shots && *options.shots < 0) fail("--num-fewshot: expected 0 or more, found ", *options.shots);
  if (options.resume && options.progress.empty())
    fail(
        "--resume needs the --output or --log-samples of the interrupted run, whose progress lies beside it");
  const TaskSelection selection = select_tasks(options.tasks);
  const DataDirectory data = data_directory(options);
  for (const TaskSpec* task : selection.tasks) data.require_files(*task, shots_of(*task, options.shots) > 0);
}

EvalResult evaluate(LanguageModel& model, const EvalOptions& options) {
  check_options(options);
  return Runner(model, options).run();
}

void remove_progress(const EvalOptions& options) {
  if (!options.progress.empty()) ProgressFile::remove(options.progress);
}

}  // namespace asynct
