#include "asynct/eval/task_run.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "asynct/base/error.h"
#include "asynct/eval/prompts.h"
#include "asynct/eval/sha256.h"

namespace asynct {
namespace {

/// Counts what does not fit, so that one message tells the whole story before anything has been run.
class LengthCheck {
 public:
  LengthCheck(const TaskSpec& task, std::int64_t max_length, bool truncate)
      : task_(task), max_length_(max_length), truncate_(truncate) {}

  /// Keeps the last `limit` of `tokens`.
  void fit(std::vector<Token>& tokens, std::int64_t limit, std::size_t document) {
    const auto size = static_cast<std::int64_t>(tokens.size());
    if (size <= limit) return;
    if (truncate_) {
      tokens.erase(tokens.begin(), tokens.end() - limit);
      return;
    }
    const std::lock_guard lock(mutex_);
    ++too_long_;
    if (size - limit > excess_) excess_ = size - limit, longest_ = document;
  }

  void report() const {
    if (too_long_ == 0) return;
    fail("task ", task_.name, ": ", too_long_, " of its prompts do not fit the model's context of ",
         max_length_, " tokens",
         task_.type == OutputType::generate_until ? cat(" with ", task_.max_new_tokens, " new ones") : "",
         "; document ", longest_, " by ", excess_, ". --truncate cuts them on the left as lm-eval does");
  }

 private:
  const TaskSpec& task_;
  std::int64_t max_length_;
  bool truncate_;
  std::mutex mutex_;
  std::size_t too_long_ = 0;
  std::size_t longest_ = 0;
  std::int64_t excess_ = 0;
};

/// Builds the requests of single documents; any thread may call.
class RequestBuilder {
 public:
  RequestBuilder(const TaskRun& run, const PromptEncoder& encoder, const TaskRunOptions& options)
      : run_(run),
        encoder_(encoder),
        options_(options),
        lengths_(*run.task, options.max_length, options.truncate) {}

  std::vector<ScoreRequest> scores(std::size_t document) {
    if (run_.task->type == OutputType::loglikelihood_rolling) return windows(document);
    std::vector<ScoreRequest> requests;
    for (TokenPair& pair : pairs(document)) requests.push_back(score(std::move(pair), document));
    return requests;
  }

  GenerateRequest generation(std::size_t document) {
    const TaskSpec& task = *run_.task;
    const std::int64_t room = options_.max_length - task.max_new_tokens;
    if (room < 1)
      fail("task ", task.name, ": ", task.max_new_tokens,
           " new tokens leave no room for a prompt in the model's context of ", options_.max_length,
           " tokens");
    auto prompt = encoder_.encode(run_.contexts[document].front());
    if (prompt.empty()) prompt = {encoder_.prefix_token()};
    lengths_.fit(prompt, room, document);
    return {std::move(prompt), task.max_new_tokens, task.stop};
  }

  const LengthCheck& lengths() const { return lengths_; }

 private:
  std::vector<TokenPair> pairs(std::size_t document) const {
    const Example& example = run_.documents[document];
    const auto& contexts = run_.contexts[document];
    std::vector<std::string> continuations;
    const std::size_t count = contexts.size() > 1 ? 1 : std::max<std::size_t>(1, example.choices.size());
    for (std::size_t i = 0; i < count; ++i) continuations.push_back(continuation(*run_.task, example, i));
    std::vector<TokenPair> all;
    for (const std::string& context : contexts)
      for (TokenPair& pair : encoder_.encode_pairs(context, continuations)) all.push_back(std::move(pair));
    return all;
  }

  ScoreRequest score(TokenPair pair, std::size_t document) {
    const auto scored = static_cast<std::int64_t>(pair.continuation.size());
    if (scored == 0)
      fail("task ", run_.task->name, ", document ", document, ": a choice adds no token to its context");
    if (scored > options_.max_length)
      fail("task ", run_.task->name, ", document ", document, ": a choice of ", scored,
           " tokens is longer than the model's context of ", options_.max_length);
    std::vector<Token> tokens = std::move(pair.context);
    tokens.insert(tokens.end(), pair.continuation.begin(), pair.continuation.end());
    lengths_.fit(tokens, options_.max_length + 1, document);  // the last token is predicted, never an input
    const std::int64_t begin = static_cast<std::int64_t>(tokens.size()) - scored;
    return {std::move(tokens), begin};
  }

  std::vector<ScoreRequest> windows(std::size_t document) const {
    std::vector<ScoreRequest> requests;
    for (TokenWindow& window : encoder_.encode_windows(run_.documents[document].text, options_.max_length)) {
      const auto begin = static_cast<std::int64_t>(window.tokens.size()) - window.scored;
      requests.push_back({std::move(window.tokens), begin});
    }
    return requests;
  }

  const TaskRun& run_;
  const PromptEncoder& encoder_;
  const TaskRunOptions& options_;
  LengthCheck lengths_;
};

void build_contexts(TaskRun& run, DataDirectory& data) {
  const TaskSpec& task = *run.task;
  std::vector<Example> pool;
  if (run.shots > 0) pool = data.shot_pool(task);
  PromptBuilder builder(task, run.shots, pool);
  for (const Example& document : run.documents) run.contexts.push_back(builder.next(document));
}

/// Calls body(document) for all documents; the first exception ends it.
void for_each_document(ThreadPool& pool, std::size_t documents, FunctionRef<void(std::size_t)> body) {
  pool.parallel_for(static_cast<std::int64_t>(documents), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) body(static_cast<std::size_t>(i));
  });
}

}  // namespace

int shots_of(const TaskSpec& task, std::optional<int> asked) {
  return task.type == OutputType::loglikelihood_rolling ? 0 : asked.value_or(task.shots);
}

TaskRun prepare(const TaskSpec& task, DataDirectory& data, const PromptEncoder& encoder, ThreadPool& pool,
                const TaskRunOptions& options) {
  TaskRun run;
  run.task = &task;
  run.shots = options.shots;
  run.documents = data.documents(task, options.documents);
  build_contexts(run, data);

  RequestBuilder builder(run, encoder, options);
  const std::size_t documents = run.documents.size();
  if (task.type == OutputType::generate_until) {
    run.generations.resize(documents);
    for_each_document(pool, documents, [&](std::size_t i) { run.generations[i] = builder.generation(i); });
    for (std::size_t i = 0; i < documents; ++i) run.ranges.push_back({i, 1});
  } else {
    std::vector<std::vector<ScoreRequest>> parts(documents);
    for_each_document(pool, documents, [&](std::size_t i) { parts[i] = builder.scores(i); });
    for (auto& part : parts) {
      run.ranges.push_back({run.scores.size(), part.size()});
      std::move(part.begin(), part.end(), std::back_inserter(run.scores));
    }
  }
  builder.lengths().report();
  return run;
}

std::string request_key(const TaskRun& run) {
  Sha256 hash;
  const auto add = [&](const std::vector<Token>& tokens, std::int64_t number) {
    hash.update(cat(tokens.size(), ",", number, ";"));
    hash.update({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token)});
  };
  for (const ScoreRequest& request : run.scores) add(request.tokens, request.score_begin);
  for (const GenerateRequest& request : run.generations) {
    add(request.prompt, request.max_new_tokens);
    for (const std::string& stop : request.stop) hash.update(cat(stop, ";"));
  }
  return hash.hex();
}

}  // namespace asynct
