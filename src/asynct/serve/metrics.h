#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "asynct/engine/engine_thread.h"
#include "asynct/ops/feed_forward/feed_forward.h"

namespace asynct::serve {

/// A Prometheus histogram of seconds. Any thread may add.
class Histogram {
 public:
  void add(double seconds);
  /// Appends its lines under `name`.
  void write(std::string& out, std::string_view name, std::string_view labels, std::string_view help) const;

 private:
  static constexpr std::array<double, 18> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,    10,   20,   40,   80};
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::int64_t> nanoseconds_{0};
};

/// What the server counts itself; the engine's own counters come with EngineStatus.
struct Metrics {
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram request_latency;
  std::atomic<std::int64_t> finished_stop{0};
  std::atomic<std::int64_t> finished_length{0};
  std::atomic<std::int64_t> finished_abort{0};
  std::atomic<std::int64_t> finished_error{0};
  std::atomic<std::int64_t> prompt_tokens{0};

  void count_ending(std::string_view reason);
};

/// The text of /metrics: vLLM's names where the meaning is the same, ours else.
std::string prometheus_text(const Metrics& metrics, const EngineStatus& engine,
                            std::span<const FeedForward::Counts> layers, std::string_view model);

}  // namespace asynct::serve
