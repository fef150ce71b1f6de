#include "asynct/base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace asynct {

Progress::Progress(std::string label, std::int64_t total_items)
    : label_(std::move(label)),
      total_(total_items),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()) {}

Progress::~Progress() {
  if (!terminal_) return;
  draw(Clock::now());
  std::fputc('\n', stderr);
}

void Progress::update(std::int64_t items_done, std::int64_t tokens_done) {
  items_ = items_done;
  tokens_ = tokens_done;
  if (!terminal_) return;
  const auto now = Clock::now();
  if (now - drawn_ < std::chrono::milliseconds(200)) return;
  draw(now);
}

void Progress::draw(Clock::time_point now) {
  drawn_ = now;
  constexpr int kWidth = 24;
  const double seconds = std::max(1e-6, std::chrono::duration<double>(now - start_).count());
  const double share = total_ > 0 ? static_cast<double>(items_) / static_cast<double>(total_) : 1.0;
  const int filled = static_cast<int>(share * kWidth);
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  char bar[kWidth + 1];
  for (int i = 0; i < kWidth; ++i) bar[i] = i < filled ? '#' : '.';
  bar[kWidth] = '\0';
  std::fprintf(stderr, "\r%-16s [%s] %3.0f%%  %lld/%lld  %.1f/s  %.0f tok/s  ETA %d:%02d \x1b[K",
               label_.c_str(), bar, share * 100, static_cast<long long>(items_),
               static_cast<long long>(total_), static_cast<double>(items_) / seconds,
               static_cast<double>(tokens_) / seconds, static_cast<int>(left) / 60,
               static_cast<int>(left) % 60);
  std::fflush(stderr);
}

}  // namespace asynct
