#pragma once

#include <cstdint>

namespace asynct::cuda {

/// Whether decode of one layer fetches needed values only (DecodeArgs::skip_values): estimated from what its
/// launches count, decided where a step is planned. Skipping changes no result, so neither do the estimate's
/// age nor its errors; they cost time only.
///
/// The counter is read without waiting: a copy to pinned memory behind a step's last layer, observed when its
/// event has passed, which is a plan or two later. Nobody resets it, so a copy may be left out.
class ValueDensity {
 public:
  /// Measured on an H200 (docs/notes/hopper-attention.md): both ways take equally long at 0.95 to 0.99. The
  /// gap keeps a layer at the border from changing its launch each step.
  static constexpr double kSkipBelow = 0.94;
  static constexpr double kAllAbove = 0.97;

  /// A later reading of the layer's DecodeArgs::value_count; the launches since the one before saw less than
  /// 2^32 keys.
  void observe(std::uint64_t count);

  /// The share of values that some query row of their KV head gives weight, over the keys of the last
  /// readings; 1 before the first.
  double estimate() const { return needed_ / seen_; }

  /// For a plan of so many units (DecodePlan): few of them do not fill the memory's pipe, so that waiting for
  /// weights costs more than the bytes.
  bool skips(std::int32_t units, std::int32_t multiprocessors) const {
    return skips_ && 4 * units >= 3 * multiprocessors;
  }

 private:
  // What an unread layer is taken for: a step of some short sequences outweighs it.
  static constexpr double kFirstKeys = 4096;

  std::uint64_t count_ = 0;  // the last reading
  // Sums of keys that lose a part with each reading, so that a step counts by its keys.
  double seen_ = kFirstKeys;
  double needed_ = kFirstKeys;
  bool skips_ = false;
};

}  // namespace asynct::cuda
