#include "asynct/text/chat_template/value.h"

#include <algorithm>

#include "asynct/base/error.h"
#include "asynct/text/chat_template/evaluator.h"
#include "asynct/text/chat_template/python_names.h"
#include "asynct/text/chat_template/runtime.h"
#include "asynct/text/python_values.h"

namespace asynct::jinja {
namespace {

constexpr std::size_t kIndexedFrom = 9;  // string keys; below, looking through them is as fast

/// a <=> b of numbers, exactly: long double holds every 64-bit integer and every double. Nothing for NaN.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  const auto widen = [](const Value& v) {
    const auto integer = v.integer();
    return integer.has_value() ? static_cast<long double>(*integer)
                               : static_cast<long double>(*v.as<double>());
  };
  static_assert(std::numeric_limits<long double>::digits >= 64);
  return widen(a) <=> widen(b);
}

bool is_number(const Value& value) { return value.integer().has_value() || value.as<double>() != nullptr; }

/// Elements of two ranges are equal.
bool equal_ranges(const Range& a, const Range& b) {
  return a.length == b.length &&
         (a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step)));
}

/// == of everything that is no container; `deeper` compares elements.
template <class Deeper>
bool equal_values(const Value& a, const Value& b, Deeper deeper) {
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.data().index() != b.data().index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const String* text = a.string()) return text->text == b.string()->text;
  if (const Sequence* left = a.sequence()) {
    const Sequence* right = b.sequence();
    return left == right ||
           (left->is_tuple == right->is_tuple && left->items.size() == right->items.size() &&
            std::equal(left->items.begin(), left->items.end(), right->items.begin(), deeper));
  }
  if (const Dict* left = a.dict()) {
    const Dict* right = b.dict();
    if (left->items().size() != right->items().size()) return false;
    return std::all_of(left->items().begin(), left->items().end(), [&](const auto& item) {
      const Value* other = right->find(item.first);
      return other != nullptr && deeper(item.second, *other);
    });
  }
  if (const auto* range = a.as<Range>()) return equal_ranges(*range, *b.as<Range>());
  if (const auto* global = a.as<Global>()) return *global == *b.as<Global>();
  if (a.as<View>() != nullptr || a.as<Method>() != nullptr) return false;
  return a.name_space() == b.name_space() && pointer_of(a) == pointer_of(b);
}

}  // namespace

const void* pointer_of(const Value& value) {
  return std::visit(
      [](const auto& held) -> const void* {
        if constexpr (requires { held.get(); }) {
          return held.get();
        } else {
          return nullptr;
        }
      },
      value.data());
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* value = as<std::int64_t>()) return *value;
  if (const auto* value = as<bool>()) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<std::size_t> Dict::position(std::string_view key) const {
  if (!by_text_.empty()) {
    const auto found = by_text_.find(key);
    return found == by_text_.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (const String* text = items_[i].first.string(); text != nullptr && text->text == key) return i;
  return std::nullopt;
}

std::optional<std::size_t> Dict::position(const Value& key) const {
  if (const String* text = key.string()) return position(text->text);
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (equal_keys(items_[i].first, key)) return i;
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto at = position(key);
  return at.has_value() ? &items_[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = position(key);
  return at.has_value() ? &items_[*at].second : nullptr;
}

void Dict::set(Value key, Value value) {
  if (const auto at = position(key)) {
    items_[*at].second = std::move(value);
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() < kIndexedFrom) return;
  const std::size_t first = by_text_.empty() ? 0 : items_.size() - 1;
  for (std::size_t i = first; i < items_.size(); ++i)
    if (const String* text = items_[i].first.string()) by_text_.emplace(text->text, i);
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

Value undefined(std::string why) { return Undefined{std::make_shared<const std::string>(std::move(why))}; }

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {"an undefined value",
                                         "None",
                                         "a boolean",
                                         "an integer",
                                         "a float",
                                         "a string",
                                         "a list",
                                         "a dict",
                                         "a range",
                                         "a view of a dict",
                                         "a namespace",
                                         "a generator",
                                         "a loop",
                                         "a macro",
                                         "a function",
                                         "a method"};
  static_assert(std::size(kNames) == std::variant_size_v<Value::Data>);
  return value.tuple() != nullptr ? "a tuple" : kNames[value.data().index()];
}

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const auto* view = value.as<View>()) return view->dict->depth;
  if (const auto* iterator = value.as<std::shared_ptr<Iterator>>()) return (*iterator)->depth;
  if (const auto* loop = value.as<std::shared_ptr<Loop>>()) return (*loop)->depth();
  if (const auto* method = value.as<Method>()) return depth_of(*method->self) + 1;
  return 0;
}

bool truth(const Value& value) {
  if (const auto integer = value.integer()) return *integer != 0;
  if (const auto* number = value.as<double>()) return *number != 0;
  if (const String* text = value.string()) return !text->text.empty();
  if (const Sequence* sequence = value.sequence()) return !sequence->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items().empty();
  if (const auto* range = value.as<Range>()) return range->length > 0;
  if (const auto* view = value.as<View>()) return !view->dict->items().empty();
  return !value.is_none() && !value.is_undefined();
}

void check_hashable(const Value& value) {
  if (value.list() != nullptr || value.dict() != nullptr ||
      (value.as<View>() != nullptr && value.as<View>()->part != View::kValues))
    fail(type_name(value), " cannot be a key");
  if (const Sequence* tuple = value.tuple())
    for (const Value& item : tuple->items) check_hashable(item);
}

bool equal_keys(const Value& a, const Value& b) { return equal_values(a, b, equal_keys); }

bool equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (a.string() != nullptr) runtime.scan(a.string()->text.size());
  return equal_values(a, b, [&](const Value& x, const Value& y) { return equal(runtime, x, y); });
}

bool less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) < 0;
  if (a.string() != nullptr && b.string() != nullptr) {
    runtime.scan(a.string()->text.size());
    return a.string()->text < b.string()->text;  // bytes of UTF-8 order as code points do
  }
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  if (left != nullptr && right != nullptr && left->is_tuple == right->is_tuple) {
    for (std::size_t i = 0; i < std::min(left->items.size(), right->items.size()); ++i)
      if (!equal(runtime, left->items[i], right->items[i]))
        return less(runtime, left->items[i], right->items[i]);
    return left->items.size() < right->items.size();
  }
  for (const Value* value : {&a, &b})
    if (const auto* hole = value->as<Undefined>()) fail(*hole->why);
  fail(type_name(a), " and ", type_name(b), " have no order");
}

namespace {

template <class Items, class AppendOne>
void append_joined(std::string& out, const Items& items, AppendOne append_one) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    append_one(item);
  }
}

void append_sequence_repr(Runtime& runtime, std::string& out, const Sequence& sequence) {
  out += sequence.is_tuple ? '(' : '[';
  append_joined(out, sequence.items, [&](const Value& item) { append_repr(runtime, out, item); });
  if (sequence.is_tuple && sequence.items.size() == 1) out += ',';
  out += sequence.is_tuple ? ')' : ']';
}

void append_dict_repr(Runtime& runtime, std::string& out, const Dict& dict) {
  out += '{';
  append_joined(out, dict.items(), [&](const auto& item) {
    append_repr(runtime, out, item.first);
    out += ": ";
    append_repr(runtime, out, item.second);
  });
  out += '}';
}

void append_view_repr(Runtime& runtime, std::string& out, const View& view) {
  out += view.part == View::kKeys     ? "dict_keys(["
         : view.part == View::kValues ? "dict_values(["
                                      : "dict_items([";
  append_joined(out, view.dict->items(), [&](const auto& item) {
    if (view.part != View::kItems)
      return append_repr(runtime, out, view.part == View::kKeys ? item.first : item.second);
    out += '(';
    append_repr(runtime, out, item.first);
    out += ", ";
    append_repr(runtime, out, item.second);
    out += ')';
  });
  out += "])";
}

}  // namespace

void append_repr(Runtime& runtime, std::string& out, const Value& value) {
  runtime.step();
  if (const Sequence* sequence = value.sequence()) return append_sequence_repr(runtime, out, *sequence);
  if (const Dict* dict = value.dict()) return append_dict_repr(runtime, out, *dict);
  if (const auto* view = value.as<View>()) return append_view_repr(runtime, out, *view);
  const std::size_t before = out.size();
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (const auto* boolean = value.as<bool>()) {
    out += *boolean ? "True" : "False";
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out += cat(*integer);
  } else if (const auto* number = value.as<double>()) {
    out += python::repr(*number);
  } else if (const String* text = value.string()) {
    if (text->markup) out += "Markup(";
    append_string_repr(out, text->text);
    if (text->markup) out += ')';
  } else if (const auto* range = value.as<Range>()) {
    out += cat("range(", range->start, ", ", range->stop);
    out += range->step == 1 ? ")" : cat(", ", range->step, ")");
  } else {
    fail("cannot print ", type_name(value));
  }
  runtime.allocate(out.size() - before);
}

void append_str(Runtime& runtime, std::string& out, const Value& value) {
  if (value.is_undefined()) return;
  if (const String* text = value.string()) {
    runtime.allocate(text->text.size());
    out += text->text;
  } else {
    append_repr(runtime, out, value);
  }
}

std::string to_str(Runtime& runtime, const Value& value) {
  std::string out;
  append_str(runtime, out, value);
  return out;
}

}  // namespace asynct::jinja
