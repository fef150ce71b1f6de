#include "asynct/base/json.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/mapped_file.h"

namespace asynct {
namespace {

/// Builds a document from the parser's events. The library's own builder looks through an ordered object once
/// for every key of it; this one appends, and looks for duplicates once when the object ends. Depth is
/// checked before anything is built.
class DocumentBuilder final : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view what, int max_depth)
      : what_(what), max_depth_(static_cast<std::size_t>(max_depth)) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }

  bool key(string_t& value) override {
    member_ = &open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(value), nullptr).second;
    return true;
  }

  bool end_object() override {
    check_keys(open_.back()->get_ref<const Json::object_t&>());
    open_.pop_back();
    return true;
  }

  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();
    const auto label = text.find("] ");  // the library's own name of the error
    fail(what_, ": not valid JSON: ", label == std::string_view::npos ? text : text.substr(label + 2));
  }

 private:
  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == max_depth_) fail(what_, ": JSON is nested deeper than ", max_depth_, " levels");
    open_.push_back(place(std::move(container)));
    return true;
  }

  // Where a value lies stays the same while it is open: only the innermost container grows.
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array())
      return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }

  void check_keys(const Json::object_t& object) {
    keys_.clear();
    for (const auto& [key, value] : object) keys_.emplace_back(key);
    std::sort(keys_.begin(), keys_.end());
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end());
    if (twice != keys_.end()) fail(what_, ": JSON key \"", *twice, "\" appears twice in one object");
  }

  std::string_view what_;
  std::size_t max_depth_;
  Json root_;
  std::vector<Json*> open_;  // containers around the next value, outermost first
  Json* member_ = nullptr;   // of the innermost one, whose key has been read
  std::vector<std::string_view> keys_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  DocumentBuilder builder(what, max_depth);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json parse_json_file(const std::string& path, std::size_t limit) {
  return parse_json(read_file(path, limit), path);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace asynct
