#include "asynct/serve/load/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "asynct/base/error.h"
#include "asynct/base/interrupt.h"
#include "asynct/base/mapped_file.h"
#include "asynct/base/progress.h"
#include "asynct/serve/load/client.h"
#include "asynct/serve/load/health_poll.h"
#include "asynct/serve/load/prompts.h"
#include "asynct/serve/load/request.h"
#include "asynct/serve/load/server_info.h"

namespace asynct::load {
namespace {

constexpr std::size_t kMaxPrompts = std::size_t{1} << 30;  // bytes of a file of them
constexpr std::uint64_t kArrivalSeed = 0x6172726976616c;   // random numbers of their own, so that one
constexpr std::uint64_t kCancelSeed = 0x63616e63656c;      // option does not change what another draws
constexpr auto kTick = std::chrono::milliseconds(100);     // for progress and signals

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// As many files as the system grants: a connection takes one.
void raise_file_limit(const LoadOptions& options) {
  constexpr rlim_t kOthers = 32;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
  if (!options.rate && static_cast<rlim_t>(options.concurrency) + kOthers > limit.rlim_cur)
    fail("--concurrency: ", options.concurrency, " connections, but the process may open ", limit.rlim_cur,
         " files (ulimit -Hn)");
}

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, PromptSource& prompts, boost::asio::io_context& context, Client& client)
      : options_(options),
        prompts_(prompts),
        context_(context),
        client_(client),
        arrivals_(options.rate.value_or(1), options.seed ^ kArrivalSeed),
        cancels_(options.seed ^ kCancelSeed),
        arrival_timer_(context),
        tick_timer_(context),
        health_(context, options.url, options.api_key),
        progress_(options.requests > 0 ? "requests" : "seconds",
                  options.requests > 0 ? options.requests
                                       : static_cast<std::int64_t>(std::ceil(options.duration))) {}

  LoadResult run();

 private:
  bool may_start(Clock::time_point when) const {
    const auto started = static_cast<std::int64_t>(records_.size());
    return signal_ == 0 && (options_.requests == 0 || started < options_.requests) &&
           (options_.duration == 0 || seconds_between(begin_, when) < options_.duration);
  }
  void arrive();
  void start(Clock::time_point due);
  RequestPlan plan();
  void finished(Request& request, std::size_t index);
  void tick();
  void interrupt();
  bool over() const { return all_started_ && active_.empty(); }
  void end_if_idle();
  void show_progress();

  const LoadOptions& options_;
  PromptSource& prompts_;
  boost::asio::io_context& context_;
  Client& client_;
  ArrivalProcess arrivals_;
  double next_arrival_ = 0;
  Random cancels_;
  boost::asio::steady_timer arrival_timer_, tick_timer_;
  HealthPoll health_;
  Progress progress_;
  Clock::time_point begin_;
  std::set<std::shared_ptr<Request>> active_;
  std::vector<Record> records_;
  std::int64_t ended_ = 0;
  std::int64_t output_tokens_ = 0;
  bool all_started_ = false;
  int signal_ = 0;  // that ended the run
};

LoadResult LoadRun::run() {
  const InterruptGuard guard;
  context_.restart();
  begin_ = Clock::now();
  if (options_.health) health_.start();
  tick();
  if (options_.rate) {
    next_arrival_ = arrivals_.next();
    arrive();
  } else {
    for (std::int64_t i = 0; i < options_.concurrency && may_start(Clock::now()); ++i) start(Clock::now());
    all_started_ = !may_start(Clock::now());
    end_if_idle();
  }
  context_.run();
  LoadResult result;
  std::erase_if(records_, [](const Record& record) { return record.end == 0; });  // dropped
  for (const Record& record : records_) result.duration = std::max(result.duration, record.end);
  result.records = std::move(records_);
  result.signal = signal_;
  if (options_.health) {
    HealthResult health = health_.take();
    result.health = {summarize(std::move(health.latencies)), health.failures, std::move(health.detail)};
  }
  return result;
}

/// Starts what is due and waits for what is next. Latencies count from when a request was due, so that a late
/// client cannot make a server look fast.
void LoadRun::arrive() {
  while (true) {
    const auto due =
        begin_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(next_arrival_));
    if (!may_start(due)) {
      all_started_ = true;
      return end_if_idle();
    }
    if (due > Clock::now()) {
      arrival_timer_.expires_at(due);
      arrival_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) arrive();
      });
      return;
    }
    start(due);
    next_arrival_ = arrivals_.next();
  }
}

void LoadRun::start(Clock::time_point due) {
  const std::size_t index = records_.size();
  records_.emplace_back();
  const auto request = std::make_shared<Request>(
      context_, plan(), begin_, due,
      [this, index](Request& finished_request) { finished(finished_request, index); });
  active_.insert(request);
  request->send(client_);
}

RequestPlan LoadRun::plan() {
  constexpr double kEarly = 0.1;  // seconds in which a request without a token yet disconnects
  const Prompt prompt = prompts_.next();
  RequestPlan plan;
  const bool chat = options_.endpoint == Endpoint::chat;
  plan.http = client_.format(chat ? "/v1/chat/completions" : "/v1/completions",
                             request_body(options_, options_.model, prompt));
  plan.stream = options_.stream;
  plan.timeout = options_.timeout;
  plan.prompt_tokens = prompt.tokens;
  plan.output_tokens = prompt.output_tokens;
  plan.exact_output = options_.ignore_eos;
  if (options_.cancel_share > 0 && cancels_.unit() < options_.cancel_share) {
    const std::int64_t chunks = options_.stream ? cancels_.between(0, prompt.output_tokens - 1) : 0;
    if (chunks > 0)
      plan.cancel_after_chunks = chunks;
    else
      plan.cancel_after = cancels_.unit() * (options_.stream ? kEarly : 1);
  }
  return plan;
}

void LoadRun::finished(Request& request, std::size_t index) {
  records_[index] = std::move(request.record());
  ++ended_;
  output_tokens_ += records_[index].output_tokens;
  active_.erase(request.shared_from_this());
  if (!options_.rate) {
    const auto now = Clock::now();
    if (may_start(now))
      start(now);
    else
      all_started_ = true;
  }
  end_if_idle();
}

void LoadRun::show_progress() {
  const double elapsed = std::min(seconds_between(begin_, Clock::now()), options_.duration);
  progress_.update(options_.requests > 0 ? ended_ : std::llround(elapsed), output_tokens_);
}

void LoadRun::tick() {
  show_progress();
  if (InterruptGuard::requested()) return interrupt();
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !over()) tick();  // cancelling is too late for a handler that is queued
  });
}

void LoadRun::interrupt() {
  signal_ = InterruptGuard::signal();
  all_started_ = true;
  for (const auto& request : active_) request->drop();
  active_.clear();
  end_if_idle();
}

/// Without timers the io_context runs out of work.
void LoadRun::end_if_idle() {
  if (!over()) return;
  arrival_timer_.cancel();
  tick_timer_.cancel();
  health_.stop();
  show_progress();
}

}  // namespace

LoadResult run_load(LoadOptions options) {
  std::unique_ptr<PromptSource> prompts;
  if (!options.prompts_file.empty())
    prompts = given_prompts(options, read_file(options.prompts_file, kMaxPrompts), options.prompts_file);
  raise_file_limit(options);
  boost::asio::io_context context(1);
  Client client(context, options.url, options.api_key);
  ask_server(options, context, client);
  if (prompts == nullptr) prompts = random_prompts(options, options.vocabulary);
  LoadRun run(options, *prompts, context, client);
  LoadResult result = run.run();
  result.options = std::move(options);
  return result;
}

}  // namespace asynct::load
