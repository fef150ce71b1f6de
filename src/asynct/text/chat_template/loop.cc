#include "asynct/text/chat_template/evaluator.h"

namespace asynct::jinja {

std::optional<Value> Loop::advance() {
  std::optional<Value> element;
  if (ahead_.empty()) {
    element = next();
  } else {
    element = std::move(ahead_.front());
    ahead_.pop_front();
  }
  if (!element.has_value()) return std::nullopt;
  ++index0_;
  previous_ = std::exchange(current_, *element);
  return element;
}

const Value* Loop::peek() {
  if (ahead_.empty()) {
    auto element = next();
    if (!element.has_value()) return nullptr;
    ahead_.push_back(*std::move(element));
  }
  return &ahead_.front();
}

std::int64_t Loop::length(Runtime& runtime) {
  if (!length_.has_value()) {
    while (auto element = next()) {
      runtime.step();
      runtime.allocate(sizeof(Value));
      ahead_.push_back(*std::move(element));
    }
    length_ = static_cast<std::int64_t>(ahead_.size()) + index0_ + 1;
  }
  return *length_;
}

std::optional<Value> Loop::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(peek() == nullptr);
  if (name == "length") return Value(length(runtime));
  if (name == "revindex") return Value(length(runtime) - index0_);
  if (name == "revindex0") return Value(length(runtime) - index0_ - 1);
  if (name == "depth") return Value(std::int64_t{1});  // of recursive loops, which are not supported
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") return index0_ == 0 ? undefined("there is no previous item") : previous_;
  if (name == "nextitem") {
    const Value* ahead = peek();
    return ahead == nullptr ? undefined("there is no next item") : *ahead;
  }
  if (name == "cycle" || name == "changed") fail("loop.", name, " is not supported");
  return std::nullopt;
}

}  // namespace asynct::jinja
