#include "asynct/base/json.h"

#include <unordered_set>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"

namespace asynct {

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  // One set of keys an open object; the callback sees every event, so depth and duplicates are caught while
  // parsing, before a hostile document has been built.
  std::vector<std::unordered_set<std::string>> open;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (depth > max_depth) fail(what, ": JSON is nested deeper than ", max_depth, " levels");
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second)
      fail(what, ": JSON key \"", value.get<std::string>(), "\" appears twice in one object");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const nlohmann::json::exception& error) {
    fail(what, ": not valid JSON: ", error.what());
  }
}

Json parse_json_file(const std::string& path, std::size_t limit) {
  return parse_json(read_file(path, limit), path);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace asynct
