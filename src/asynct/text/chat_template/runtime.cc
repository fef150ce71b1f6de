#include "asynct/text/chat_template/runtime.h"

#include <algorithm>

#include "asynct/text/chat_template/evaluator.h"
#include "asynct/text/chat_template/python_names.h"
#include "asynct/text/utf8.h"

namespace asynct::jinja {

Runtime::~Runtime() {
  for (const auto& space : namespaces_) space->attributes.clear();
}

Value Runtime::string(std::string text, bool markup) {
  allocate(text.size() + sizeof(String));
  return std::make_shared<const String>(String{std::move(text), markup});
}

Value Runtime::sequence(std::vector<Value> items, bool is_tuple) {
  allocate(items.size() * sizeof(Value) + sizeof(Sequence));
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (depth >= options_.limits.depth) fail("values nested deeper than ", options_.limits.depth);
  return std::make_shared<const Sequence>(Sequence{std::move(items), is_tuple, depth + 1});
}

Value Runtime::dict(Dict dict) {
  allocate(dict.items().size() * 4 * sizeof(Value) + sizeof(Dict));
  int depth = 0;
  for (const auto& [key, value] : dict.items()) depth = std::max({depth, depth_of(key), depth_of(value)});
  if (depth >= options_.limits.depth) fail("values nested deeper than ", options_.limits.depth);
  dict.depth = depth + 1;
  return std::make_shared<const Dict>(std::move(dict));
}

Value Runtime::iterator(std::function<std::optional<Value>()> next, int depth) {
  if (depth > options_.limits.depth) fail("generators nested deeper than ", options_.limits.depth);
  allocate(sizeof(Iterator) + 64);
  return std::make_shared<Iterator>(Iterator{std::move(next), depth});
}

std::shared_ptr<Namespace> Runtime::make_namespace() {
  allocate(sizeof(Namespace) + 64);
  return namespaces_.emplace_back(std::make_shared<Namespace>());
}

Value Runtime::from_json(const Json& json, int depth) {
  if (depth > options_.limits.depth) fail("variables nested deeper than ", options_.limits.depth);
  switch (json.type()) {
    case Json::value_t::null:
      return nullptr;
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<std::int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > INT64_MAX)
        fail("integer ", json.get<std::uint64_t>(), " does not fit 64 bits");
      return json.get<std::int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string: {
      std::string text;
      append_valid_utf8(text, json.get_ref<const std::string&>());
      return string(std::move(text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case Json::value_t::object: {
      Dict out;
      for (const auto& [key, value] : json.items()) {
        std::string text;
        append_valid_utf8(text, key);
        out.set(string(std::move(text)), from_json(value, depth + 1));
      }
      return dict(std::move(out));
    }
    default:
      fail("variables hold binary data");
  }
}

namespace {

/// The elements `at(0)` to `at(count - 1)`.
template <class At>
std::function<std::optional<Value>()> counted(std::int64_t count, At at) {
  return [count, at = std::move(at), i = std::int64_t{0}]() mutable -> std::optional<Value> {
    if (i == count) return std::nullopt;
    return at(i++);
  };
}

Value view_element(Runtime& runtime, const View& view, std::int64_t i) {
  const auto& [key, value] = view.dict->items()[static_cast<std::size_t>(i)];
  if (view.part == View::kKeys) return key;
  return view.part == View::kValues ? value : runtime.tuple({key, value});
}

}  // namespace

std::shared_ptr<Iterator> Runtime::iterate(const Value& value) {
  if (const auto* iterator = value.as<std::shared_ptr<Iterator>>()) return *iterator;
  std::function<std::optional<Value>()> next;
  if (value.is_undefined()) {
    next = [] { return std::nullopt; };
  } else if (value.string() != nullptr) {
    const auto held = *value.as<std::shared_ptr<const String>>();
    next = [this, held, at = std::size_t{0}]() mutable -> std::optional<Value> {
      if (at == held->text.size()) return std::nullopt;
      const auto size = static_cast<std::size_t>(decode_valid_utf8(held->text.data() + at).length);
      at += size;
      return string(held->text.substr(at - size, size));  // not markup, even of markup
    };
  } else if (const auto* sequence = value.as<std::shared_ptr<const Sequence>>()) {
    next = counted(static_cast<std::int64_t>((*sequence)->items.size()),
                   [held = *sequence](std::int64_t i) { return held->items[static_cast<std::size_t>(i)]; });
  } else if (const auto* range = value.as<Range>()) {
    next = counted(range->length, [held = *range](std::int64_t i) { return Value(held.at(i)); });
  } else if (const auto* dict = value.as<std::shared_ptr<const Dict>>()) {
    return iterate(View{*dict, View::kKeys});
  } else if (const auto* view = value.as<View>()) {
    next = counted(static_cast<std::int64_t>(view->dict->items().size()),
                   [this, held = *view](std::int64_t i) { return view_element(*this, held, i); });
  } else {
    fail(type_name(value), " is not iterable");
  }
  return *iterator(std::move(next), std::max(depth_of(value), 1)).as<std::shared_ptr<Iterator>>();
}

std::vector<Value> Runtime::elements(const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    allocate(sequence->items.size() * sizeof(Value));
    step(sequence->items.size());
    return sequence->items;
  }
  std::vector<Value> out;
  const auto iterator = iterate(value);
  while (auto element = iterator->next()) {
    step();
    allocate(sizeof(Value));
    out.push_back(*std::move(element));
  }
  return out;
}

std::optional<std::int64_t> Runtime::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const String* text = value.string()) {
    scan(text->text.size());
    return jinja::length(text->text);
  }
  if (const Sequence* sequence = value.sequence()) return static_cast<std::int64_t>(sequence->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->items().size());
  if (const auto* range = value.as<Range>()) return range->length;
  if (const auto* view = value.as<View>()) return static_cast<std::int64_t>(view->dict->items().size());
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) return (*loop)->length(*this);
  return std::nullopt;
}

}  // namespace asynct::jinja
