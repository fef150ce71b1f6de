#include "asynct/text/chat_template/access.h"

#include <algorithm>

#include "asynct/text/chat_template/evaluator.h"
#include "asynct/text/chat_template/methods.h"
#include "asynct/text/chat_template/python_names.h"

namespace asynct::jinja {
namespace {

Value missing(const Value& object, std::string_view name) {
  return undefined(cat(type_name(object), " has no attribute '", name, "'"));
}

Value unsafe(const Value& object, std::string_view name) {
  return undefined(cat("access to the attribute '", name, "' of ", type_name(object), " is not safe"));
}

/// What Python's getattr finds.
std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (Namespace* space = object.name_space()) {
    const Value* found = space->find(name);
    if (found == nullptr) return std::nullopt;
    return name.starts_with('_') ? unsafe(object, name) : *found;
  }
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) return (*loop)->attribute(runtime, name);
  switch (find_method(object, name)) {
    case MethodKind::kNone:
      return std::nullopt;
    case MethodKind::kForbidden:
      return unsafe(object, name);
    default:
      break;
  }
  runtime.allocate(sizeof(Value) + sizeof(Method));
  return Value(Method{std::make_shared<const Value>(object), std::string(name)});
}

/// The element `index` of a sequence of `size`, negative from the end.
std::optional<std::int64_t> position(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? std::optional(index) : std::nullopt;
}

/// What Python's object[key] finds.
std::optional<Value> own_item(Runtime& runtime, const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    if (key.string() != nullptr) runtime.scan(key.string()->text.size());
    if (key.list() != nullptr || key.dict() != nullptr) return std::nullopt;
    if (key.tuple() != nullptr) check_hashable(key);
    const Value* found = dict->find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const auto index = key.integer();
  if (!index.has_value()) return std::nullopt;
  if (const String* text = object.string()) {
    runtime.scan(text->text.size());
    const auto at = position(*index, length(text->text));
    if (!at.has_value()) return std::nullopt;
    const std::size_t begin = byte_offset(text->text, *at);
    return runtime.string(
        text->text.substr(begin, byte_offset(std::string_view(text->text).substr(begin), 1)), text->markup);
  }
  if (const Sequence* sequence = object.sequence()) {
    const auto at = position(*index, static_cast<std::int64_t>(sequence->items.size()));
    return at.has_value() ? std::optional(sequence->items[static_cast<std::size_t>(*at)]) : std::nullopt;
  }
  if (const auto* range = object.as<Range>()) {
    const auto at = position(*index, range->length);
    return at.has_value() ? std::optional(Value(range->at(*at))) : std::nullopt;
  }
  return std::nullopt;
}

void refuse_undefined(const Value& object) {
  if (const auto* hole = object.as<Undefined>()) fail(*hole->why);
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  refuse_undefined(object);
  if (auto found = own_attribute(runtime, object, name)) return *std::move(found);
  if (const Dict* dict = object.dict())
    if (const Value* found = dict->find(name)) return *found;
  return missing(object, name);
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  refuse_undefined(object);
  if (auto found = own_item(runtime, object, key)) return *std::move(found);
  if (const String* name = key.string()) {
    if (auto found = own_attribute(runtime, object, name->text)) return *std::move(found);
    runtime.allocate(name->text.size());
    return missing(object, name->text);
  }
  return undefined(cat(type_name(object), " has no such element"));
}

namespace {

std::optional<std::int64_t> bound(const Value* value) {
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (const auto integer = value->integer()) return integer;
  fail("slice: expected integers, found ", type_name(*value));
}

/// The chosen positions of a sequence of `size`: Python's slice.indices().
Range slice_positions(std::int64_t size, const Value* start_value, const Value* stop_value,
                      const Value* step_value) {
  const std::int64_t step = bound(step_value).value_or(1);
  if (step == 0) fail("slice: the step is 0");
  const std::int64_t lowest = step < 0 ? -1 : 0;
  const std::int64_t highest = step < 0 ? size - 1 : size;
  const auto clamp = [&](std::optional<std::int64_t> at, std::int64_t otherwise) {
    if (!at.has_value()) return otherwise;
    return std::clamp(*at < 0 ? *at + size : *at, lowest, highest);
  };
  const std::int64_t start = clamp(bound(start_value), step < 0 ? highest : lowest);
  const std::int64_t stop = clamp(bound(stop_value), step < 0 ? lowest : highest);
  std::int64_t count = 0;
  if (step > 0 && start < stop) count = (stop - start - 1) / step + 1;
  // step + 1 cannot overflow, unlike -step
  if (step < 0 && stop < start) count = step < -size ? 1 : (start - stop - 1) / -step + 1;
  return {start, stop, step, count};
}

}  // namespace

Value get_slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop,
                const Value* step) {
  refuse_undefined(object);
  if (const String* text = object.string()) {
    const std::vector<std::string_view> all = characters(text->text);
    runtime.allocate(all.size() * sizeof(std::string_view));
    const Range chosen = slice_positions(static_cast<std::int64_t>(all.size()), start, stop, step);
    std::string out;
    for (std::int64_t i = 0; i < chosen.length; ++i) out += all[static_cast<std::size_t>(chosen.at(i))];
    return runtime.string(std::move(out), text->markup);
  }
  if (const Sequence* sequence = object.sequence()) {
    const Range chosen =
        slice_positions(static_cast<std::int64_t>(sequence->items.size()), start, stop, step);
    runtime.allocate(static_cast<std::size_t>(chosen.length) * sizeof(Value));
    std::vector<Value> items;
    for (std::int64_t i = 0; i < chosen.length; ++i)
      items.push_back(sequence->items[static_cast<std::size_t>(chosen.at(i))]);
    return sequence->is_tuple ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
  }
  if (const auto* range = object.as<Range>()) {
    const Range chosen = slice_positions(range->length, start, stop, step);
    const auto at = [&](std::int64_t i) {
      std::int64_t value = 0;
      if (__builtin_mul_overflow(i, range->step, &value) ||
          __builtin_add_overflow(value, range->start, &value))
        fail("slice: the bounds of the range do not fit 64 bits");
      return value;
    };
    std::int64_t step_product = 0;
    if (__builtin_mul_overflow(range->step, chosen.step, &step_product))
      fail("slice: the step does not fit 64 bits");
    return Range{at(chosen.start), at(chosen.stop), step_product, chosen.length};
  }
  fail("slice: ", type_name(object), " has no slices");
}

AttributePath::AttributePath(Runtime& runtime, const Value& path) {
  const String* text = path.string();
  if (text == nullptr) {
    if (!path.is_none()) parts_.push_back(path);
    return;
  }
  for (const std::string_view part : split(text->text, ".", -1, false)) {
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index) {
      parts_.emplace_back(*parse_integer(part, 10));
    } else {
      parts_.push_back(runtime.string(std::string(part)));
    }
  }
}

Value AttributePath::get(Runtime& runtime, const Value& object, const Value* otherwise) const {
  Value value = object;
  for (const Value& part : parts_) {
    value = get_item(runtime, value, part);
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

}  // namespace asynct::jinja
