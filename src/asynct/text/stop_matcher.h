#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace asynct {

/// Looks for stop strings in text that arrives in pieces. Text that may be the beginning of a stop string is
/// held back until the next piece decides; the text before the first stop is all that is ever given out.
/// "First" is by position of its first character, as a search of the whole text for each stop would find it.
class StopMatcher {
 public:
  /// Empty stop strings are ignored. No stops: everything passes.
  explicit StopMatcher(std::vector<std::string> stops);

  /// The part of the text so far, not yet given out, that no stop string can reach. After a stop: nothing.
  std::string push(std::string_view piece);
  /// The end of the text: what was held back.
  std::string finish();

  bool stopped() const { return stop_ >= 0; }
  /// Index into `stops` (empty ones counted) of the stop found, -1 for none. At one position the first
  /// listed.
  int stop_index() const { return stop_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  int stop_ = -1;
};

}  // namespace asynct
