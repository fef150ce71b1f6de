#include "asynct/serve/load/sse_parser.h"

#include <algorithm>

namespace asynct::load {

bool SseParser::feed(std::string_view bytes, FunctionRef<void(std::string_view)> on_data) {
  while (!failed_ && !bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > limit_) {
      failed_ = true;
    } else if (end == std::string_view::npos) {
      line_ += part;
      break;
    } else {
      after_cr_ = bytes[end] == '\r';
      bytes.remove_prefix(end + 1);
      if (line_.empty()) {
        failed_ = !take_line(part, on_data);
      } else {
        line_ += part;
        failed_ = !take_line(line_, on_data);
        line_.clear();
      }
    }
  }
  return !failed_;
}

bool SseParser::take_line(std::string_view line, FunctionRef<void(std::string_view)> on_data) {
  if (first_line_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return true;
  }
  const std::size_t colon = std::min(line.find(':'), line.size());
  if (line.substr(0, colon) != "data") return true;  // a comment (no name at all) or another field
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (data_.size() + value.size() + 1 > limit_) return false;
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
  return true;
}

}  // namespace asynct::load
