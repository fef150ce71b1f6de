#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace asynct {

/// A one-line progress bar on standard error: share done, items/s, tokens/s, time left. Draws at most five
/// times a second and only when standard error is a terminal; in a pipe it says nothing.
class Progress {
 public:
  Progress(std::string label, std::int64_t total_items);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t items_done, std::int64_t tokens_done);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now);

  std::string label_;
  std::int64_t total_;
  std::int64_t items_ = 0;
  std::int64_t tokens_ = 0;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point drawn_;
};

}  // namespace asynct
