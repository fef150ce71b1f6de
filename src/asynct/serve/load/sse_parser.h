#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "asynct/base/function_ref.h"

namespace asynct::load {

/// Server-sent events (WHATWG HTML, "parsing an event stream") off any split of their bytes: the `data` of
/// each event. Event names, ids and retry times are dropped.
class SseParser {
 public:
  explicit SseParser(std::size_t max_event_bytes = std::size_t{4} << 20) : limit_(max_event_bytes) {}

  /// Calls on_data for each event that these bytes complete. False, and for good: a line or an event is
  /// longer than the limit.
  bool feed(std::string_view bytes, FunctionRef<void(std::string_view data)> on_data);

  /// Nothing waits for its end: no part of a line, no data without an empty line.
  bool at_boundary() const { return line_.empty() && !has_data_; }

 private:
  bool take_line(std::string_view line, FunctionRef<void(std::string_view)> on_data);

  std::size_t limit_;
  std::string line_;  // its end has not come yet
  std::string data_;
  bool has_data_ = false;
  bool first_line_ = true;
  bool after_cr_ = false;  // a line feed now belongs to the line that ended
  bool failed_ = false;
};

}  // namespace asynct::load
