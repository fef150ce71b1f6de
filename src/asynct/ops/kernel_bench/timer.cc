#include "asynct/ops/kernel_bench/timer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "asynct/base/error.h"
#include "asynct/ops/cuda/error.h"

namespace asynct::kernel_bench {
namespace {

using Clock = std::chrono::steady_clock;

class Stream {
 public:
  Stream() { cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { cuda::check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Calls of a candidate as one graph, with events around it.
class Replay {
 public:
  Replay(const Candidate& candidate, int sets, double graph_seconds, cudaStream_t stream);
  ~Replay() { cudaGraphExecDestroy(graph_); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  void start() {
    cuda::check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
    cuda::check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
    cuda::check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
  }
  /// Seconds a call of what was started.
  double finish() {
    float milliseconds = 0;
    cuda::check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    cuda::check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3 / calls_;
  }

 private:
  double estimate(const Candidate& candidate, int sets);
  void capture(const Candidate& candidate, int sets);

  cudaStream_t stream_;
  Event begin_, end_;
  int calls_ = 1;
  cudaGraphExec_t graph_ = nullptr;
};

Replay::Replay(const Candidate& candidate, int sets, double graph_seconds, cudaStream_t stream)
    : stream_(stream) {
  constexpr double kMostCalls = 2000;
  estimate(candidate, sets);  // the first time a kernel is loaded
  const double rounds = graph_seconds / std::max(1e-7, estimate(candidate, sets)) / sets;
  calls_ = sets * static_cast<int>(std::clamp(std::round(rounds), 1.0, std::max(1.0, kMostCalls / sets)));
  capture(candidate, sets);
}

/// Seconds a call outside of a graph, launches included.
double Replay::estimate(const Candidate& candidate, int sets) {
  cuda::check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
  for (int set = 0; set < sets; ++set) candidate.launch(set, stream_);
  cuda::check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
  calls_ = sets;
  return finish();
}

void Replay::capture(const Candidate& candidate, int sets) {
  cudaGraph_t graph = nullptr;
  cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    for (int call = 0; call < calls_; ++call) candidate.launch(call % sets, stream_);
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  cuda::check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  cuda::check(made, "cudaGraphInstantiate");
}

/// Samples clock and power from its construction to stop().
class Monitor {
 public:
  explicit Monitor(const Nvml& nvml) : thread_([this, &nvml] { run(nvml); }) {}
  ~Monitor() { join(); }

  /// Medians of the later half of the samples.
  Nvml::Sample stop() {
    join();
    const auto half = static_cast<std::ptrdiff_t>(samples_.size() / 2);
    std::vector<double> mhz;
    std::vector<double> watts;
    std::for_each(samples_.begin() + half, samples_.end(), [&](const Nvml::Sample& sample) {
      mhz.push_back(sample.sm_mhz);
      watts.push_back(sample.watts);
    });
    return {.sm_mhz = summarize(mhz).median, .watts = summarize(watts).median};
  }

 private:
  void run(const Nvml& nvml) {
    while (!done_.load()) {
      samples_.push_back(nvml.sample());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void join() {
    done_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<bool> done_ = false;
  std::vector<Nvml::Sample> samples_;
  std::thread thread_;
};

void pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

Timing timing(std::vector<double> seconds, const Nvml::Sample& sample) {
  return {.seconds = summarize(std::move(seconds)), .sm_mhz = sample.sm_mhz, .watts = sample.watts};
}

/// Two of them in flight, so that the card never waits for the host.
Timing measure_sustained(const Candidate& candidate, int sets, const TimingOptions& options, const Nvml& nvml,
                         cudaStream_t stream) {
  Replay first(candidate, sets, options.graph_seconds, stream);
  Replay second(candidate, sets, options.graph_seconds, stream);
  Replay* running = &first;
  Replay* next = &second;
  Monitor monitor(nvml);
  std::vector<double> times;
  const auto begin = Clock::now();
  running->start();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < options.sustained_seconds) {
    next->start();
    times.push_back(running->finish());
    std::swap(running, next);
  }
  times.push_back(running->finish());
  const Nvml::Sample sample = monitor.stop();
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return timing(std::move(times), sample);
}

/// Indices of those that go on: of each name the fastest, or one that failed when all did.
std::vector<std::size_t> fastest_of_each(const std::vector<Result>& results) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto same = std::find_if(kept.begin(), kept.end(),
                                   [&](std::size_t j) { return results[j].variant == results[i].variant; });
    if (same == kept.end())
      kept.push_back(i);
    else if (results[i].error.empty() &&
             (!results[*same].error.empty() ||
              results[i].bursts.seconds.median < results[*same].bursts.seconds.median))
      *same = i;
  }
  return kept;
}

void measure_bursts(std::vector<std::unique_ptr<Replay>>& replays, const TimingOptions& options,
                    const Nvml& nvml, std::vector<Result>& results) {
  std::vector<std::vector<double>> bursts(replays.size());
  Monitor monitor(nvml);
  for (int round = 0; round < options.skipped + options.rounds; ++round)
    for (std::size_t i = 0; i < replays.size(); ++i) {
      if (replays[i] == nullptr) continue;
      pause(options.gap_seconds);
      replays[i]->start();
      const double seconds = replays[i]->finish();
      if (round >= options.skipped) bursts[i].push_back(seconds);
    }
  const Nvml::Sample sample = monitor.stop();
  for (std::size_t i = 0; i < replays.size(); ++i)
    if (replays[i] != nullptr) results[i].bursts = timing(std::move(bursts[i]), sample);
}

}  // namespace

std::vector<Result> measure(const Group& group, const TimingOptions& options, const Nvml& nvml) {
  const Stream stream;
  const std::size_t count = group.candidates.size();
  std::vector<Result> results;
  std::vector<std::unique_ptr<Replay>> replays(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Candidate& candidate = group.candidates[i];
    results.push_back({.kernel = group.kernel,
                       .shape = group.shape,
                       .variant = candidate.variant,
                       .floor = candidate.floor,
                       .sets = group.sets});
    try {
      replays[i] = std::make_unique<Replay>(candidate, group.sets, options.graph_seconds, stream.get());
    } catch (const Error& error) {
      results[i].error = error.what();
    }
  }
  measure_bursts(replays, options, nvml, results);
  replays.clear();
  std::vector<Result> kept;
  for (const std::size_t i : fastest_of_each(results)) {
    kept.push_back(std::move(results[i]));
    if (kept.back().error.empty() && options.sustained_seconds > 0)
      kept.back().sustained = measure_sustained(group.candidates[i], group.sets, options, nvml, stream.get());
  }
  return kept;
}

}  // namespace asynct::kernel_bench
