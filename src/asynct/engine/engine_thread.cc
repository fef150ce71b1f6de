#include "asynct/engine/engine_thread.h"

#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/base/log.h"

namespace asynct {

class EngineThread::Impl : EngineListener {
 public:
  Impl(ModelRunner& model, const Options& options, std::function<void()> after_step)
      : model_(model), options_(options), after_step_(std::move(after_step)) {
    engine_.emplace(model, options.engine);
    status_.blocks = status_.free_blocks = options.engine.blocks;
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() override {
    shut_down(std::chrono::milliseconds(0));
    {
      const std::lock_guard lock(mutex_);
      exit_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  std::optional<std::vector<Ticket>> submit(std::vector<Submission>&& submissions, bool more) {
    std::vector<Ticket> tickets;
    tickets.reserve(submissions.size());
    {
      const std::lock_guard lock(mutex_);
      const std::int64_t all = status_.queued + status_.waiting + std::ssize(submissions);
      if (more ? ending_ : closing_ || all > options_.max_queue) return {};
      commands_.reserve(commands_.size() + submissions.size());
      for (auto& [tree, listener] : submissions) {
        tickets.push_back(++last_ticket_);
        commands_.push_back(
            {.ticket = tickets.back(), .tree = std::move(tree), .listener = std::move(listener)});
      }
      status_.queued += std::ssize(submissions);
    }
    wake_.notify_one();
    return tickets;
  }

  void cancel(Ticket ticket) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back({.ticket = ticket});
    }
    wake_.notify_one();
  }

  bool reset_prefix_cache() {
    std::promise<bool> done;
    std::future<bool> result = done.get_future();
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back({.reset = &done});
    }
    wake_.notify_one();
    return result.get();
  }

  std::int64_t max_queue() const { return options_.max_queue; }

  EngineStatus status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void shut_down(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    closing_ = true;
    const auto is_empty = [this] { return empty_ && commands_.empty(); };
    const bool ended = emptied_.wait_for(lock, grace, is_empty);
    ending_ = true;
    if (ended) return;
    cancel_all_ = true;
    wake_.notify_one();
    emptied_.wait(lock, is_empty);
  }

 private:
  struct Command {
    Ticket ticket = 0;
    std::vector<Request> tree;
    std::shared_ptr<SubmissionListener> listener;  // null: a cancellation
    std::promise<bool>* reset = nullptr;
  };
  struct Live {
    std::shared_ptr<SubmissionListener> listener;
    RequestId first = 0;
    std::size_t live = 0;  // requests that have not finished
  };

  void run() {
    bool more = false;
    while (wait_for_work(more)) {
      for (Command& command : taken_) handle(command);
      taken_.clear();
      more = step();
      publish_status(more);
      if (after_step_) after_step_();
    }
  }

  // Takes the commands; sleeps while there is nothing to do. False: the end.
  bool wait_for_work(bool more) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return more || exit_ || cancel_all_ || !commands_.empty(); });
    if (exit_) return false;
    std::swap(taken_, commands_);
    if (std::exchange(cancel_all_, false)) {
      for (std::size_t i = taken_.size(); i-- > 0;) taken_.push_back({.ticket = taken_[i].ticket});
      for (const auto& [ticket, submission] : submissions_) taken_.push_back({.ticket = ticket});
    }
    empty_ = false;
    for (const Command& command : taken_) status_.queued -= command.listener != nullptr ? 1 : 0;
    return true;
  }

  void handle(Command& command) {
    if (command.reset != nullptr) return command.reset->set_value(engine_->reset_prefix_cache());
    if (command.listener == nullptr) return cancel_now(command.ticket);
    const std::size_t count = command.tree.size();
    try {
      const RequestId first = engine_->submit(std::move(command.tree));
      for (std::size_t i = 0; i < count; ++i)
        tickets_.emplace(first + static_cast<RequestId>(i), command.ticket);
      submissions_.emplace(command.ticket, Live{command.listener, first, count});
    } catch (const std::bad_alloc& error) {  // the engine may have a part of it
      for (std::size_t i = 0; i < count; ++i)
        tell([&] { command.listener->on_finished(i, FinishReason::failed, error.what()); });
      start_again(error.what());
    } catch (const std::exception& error) {
      tell([&] { command.listener->on_rejected(error.what()); });
    }
  }

  void cancel_now(Ticket ticket) {
    const auto found = submissions_.find(ticket);
    if (found == submissions_.end()) return;
    try {
      engine_->cancel(found->second.first, *this);
    } catch (const std::exception& error) {
      start_again(error.what());
    }
  }

  bool step() {
    const auto start = std::chrono::steady_clock::now();
    bool more = false;
    try {
      more = engine_->step(*this);
    } catch (const std::exception& error) {
      start_again(error.what());
    }
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return more;
  }

  // Not the model failed (the engine deals with that) but the engine or a listener, out of memory perhaps:
  // all requests fail, and it begins afresh.
  void start_again(std::string_view error) {
    log(LogLevel::error, cat("engine: ", error, "; all requests fail"));
    while (!tickets_.empty()) on_finished(tickets_.begin()->first, FinishReason::failed, error);
    engine_.emplace(model_, options_.engine);
  }

  void publish_status(bool more) {
    const std::lock_guard lock(mutex_);
    status_.counters = engine_->counters();
    status_.tokens_generated = generated_;
    status_.waiting = engine_->waiting_requests();
    status_.running = engine_->running_requests();
    status_.free_blocks = engine_->pool().free_blocks();
    status_.forward_seconds = seconds_;
    empty_ = !more;
    if (empty_) emptied_.notify_all();
  }

  Live& submission_of(RequestId id) { return submissions_.at(tickets_.at(id)); }

  void on_scores(RequestId id, std::size_t first, std::span<const TokenScore> scores) override {
    Live& submission = submission_of(id);
    submission.listener->on_scores(static_cast<std::size_t>(id - submission.first), first, scores);
  }
  void on_target_logprobs(RequestId id, std::size_t target, std::span<const TokenLogprob> logprobs) override {
    Live& submission = submission_of(id);
    submission.listener->on_target_logprobs(static_cast<std::size_t>(id - submission.first), target,
                                            logprobs);
  }
  bool on_token(RequestId id, Token token, std::span<const TokenLogprob> logprobs) override {
    ++generated_;
    Live& submission = submission_of(id);
    return submission.listener->on_token(static_cast<std::size_t>(id - submission.first), token, logprobs);
  }
  void on_end_token(RequestId id, Token token, std::span<const TokenLogprob> logprobs) override {
    Live& submission = submission_of(id);
    submission.listener->on_end_token(static_cast<std::size_t>(id - submission.first), token, logprobs);
  }
  void on_finished(RequestId id, FinishReason reason, std::string_view error) override {
    const auto ticket = tickets_.find(id);
    if (ticket == tickets_.end()) return;  // memory ran out while it was being started: it is told
    const auto submission = submissions_.find(ticket->second);
    tickets_.erase(ticket);
    if (submission == submissions_.end()) return;
    const std::shared_ptr<SubmissionListener> listener = submission->second.listener;
    const auto request = static_cast<std::size_t>(id - submission->second.first);
    if (--submission->second.live == 0) submissions_.erase(submission);
    tell([&] { listener->on_finished(request, reason, error); });
  }

  // The last that a listener hears. When it throws all the same, that is not the others' failure.
  template <class Call>
  static void tell(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      log(LogLevel::error, cat("engine: the listener of a request that has ended: ", error.what()));
    }
  }

  ModelRunner& model_;
  const Options options_;
  const std::function<void()> after_step_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;     // the engine's thread
  std::condition_variable emptied_;  // shut_down()
  std::vector<Command> commands_;
  EngineStatus status_;
  Ticket last_ticket_ = 0;
  bool closing_ = false;
  bool cancel_all_ = false;
  bool ending_ = false;  // the deadline is over, or all was done before
  bool exit_ = false;
  bool empty_ = true;

  // Of the engine's thread.
  std::optional<Engine> engine_;
  std::vector<Command> taken_;
  std::unordered_map<Ticket, Live> submissions_;
  std::unordered_map<RequestId, Ticket> tickets_;
  std::int64_t generated_ = 0;
  double seconds_ = 0;

  std::thread thread_;
};

EngineThread::EngineThread(ModelRunner& model, const Options& options, std::function<void()> after_step)
    : impl_(std::make_unique<Impl>(model, options, std::move(after_step))) {}
EngineThread::~EngineThread() = default;

std::optional<std::vector<EngineThread::Ticket>> EngineThread::submit(std::vector<Submission> submissions) {
  return impl_->submit(std::move(submissions), false);
}
std::optional<EngineThread::Ticket> EngineThread::submit(std::vector<Request> tree,
                                                         std::shared_ptr<SubmissionListener> listener) {
  std::vector<Submission> one(1);
  one.front() = {std::move(tree), std::move(listener)};
  const auto tickets = impl_->submit(std::move(one), false);
  return tickets ? std::optional(tickets->front()) : std::nullopt;
}
std::optional<std::vector<EngineThread::Ticket>> EngineThread::submit_more(
    std::vector<Submission> submissions) {
  return impl_->submit(std::move(submissions), true);
}
void EngineThread::cancel(Ticket ticket) { impl_->cancel(ticket); }
bool EngineThread::reset_prefix_cache() { return impl_->reset_prefix_cache(); }
EngineStatus EngineThread::status() const { return impl_->status(); }
std::int64_t EngineThread::max_queue() const { return impl_->max_queue(); }
void EngineThread::shut_down(std::chrono::milliseconds grace) { impl_->shut_down(grace); }

}  // namespace asynct
