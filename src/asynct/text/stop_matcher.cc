#include "asynct/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace asynct {
namespace {

/// Length of the longest suffix of `text` that is a proper prefix of `stop`.
std::size_t held_suffix(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped()) return {};
  held_.append(piece);
  std::size_t first = std::string::npos;
  std::size_t held = 0;
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    if (stops_[i].empty()) continue;
    const std::size_t at = held_.find(stops_[i]);
    if (at < first) {
      first = at;
      stop_ = static_cast<int>(i);
    }
    held = std::max(held, held_suffix(held_, stops_[i]));
  }
  const std::size_t safe = stopped() ? first : held_.size() - held;
  std::string out = held_.substr(0, safe);
  held_.erase(0, stopped() ? std::string::npos : safe);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace asynct
