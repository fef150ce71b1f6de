#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/error.h"
#include "asynct/base/json.h"
#include "asynct/text/chat_template/chat_template.h"
#include "asynct/text/chat_template/value.h"

namespace asynct::jinja {

/// What one render() may still use, and the makers of values that count against it.
class Runtime {
 public:
  explicit Runtime(const ChatTemplateOptions& options)
      : options_(options), steps_(options.limits.steps), bytes_(options.limits.allocated_bytes) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const ChatTemplateOptions& options() const { return options_; }

  void step(std::size_t count = 1) {
    if (count > steps_) fail("more than ", options_.limits.steps, " steps");
    steps_ -= count;
  }
  /// Counts bytes that a new value takes.
  void allocate(std::size_t bytes) {
    if (bytes > bytes_) fail("more than ", options_.limits.allocated_bytes, " bytes of values");
    bytes_ -= bytes;
  }
  /// Counts bytes of an old value that an operation reads; reading is cheap.
  void scan(std::size_t bytes) { allocate(bytes / 16); }

  Value string(std::string text, bool markup = false);
  Value list(std::vector<Value> items) { return sequence(std::move(items), false); }
  Value tuple(std::vector<Value> items) { return sequence(std::move(items), true); }
  Value dict(Dict dict);  // whose depth is not set yet
  Value iterator(std::function<std::optional<Value>()> next, int depth);
  std::shared_ptr<Namespace> make_namespace();
  Value from_json(const Json& json, int depth = 0);

  /// iter(value): gives the elements; a generator is its own iterator. Errors: not iterable.
  std::shared_ptr<Iterator> iterate(const Value& value);
  /// list(value).
  std::vector<Value> elements(const Value& value);
  /// len(value), nothing where Python has none.
  std::optional<std::int64_t> length(const Value& value);

 private:
  Value sequence(std::vector<Value> items, bool is_tuple);

  const ChatTemplateOptions& options_;
  std::size_t steps_;
  std::size_t bytes_;
  // Namespaces are the only values that can hold themselves, so they are emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace asynct::jinja
