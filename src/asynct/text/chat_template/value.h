#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// Values of a running template: Python's, as far as chat templates see them.
namespace asynct::jinja {

class Value;
class Runtime;
struct Macro;  // evaluator.h
struct Loop;   // evaluator.h

/// Prints as nothing, iterates as empty, is false; anything else is an Error that says `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct String {
  std::string text;     // UTF-8
  bool markup = false;  // went through safe or escape: `+` escapes what is joined to it
};

/// A list or a tuple. Like all containers but namespaces it never changes once made, so that it cannot hold
/// itself; `depth` counts the containers in each other and is limited.
struct Sequence {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
};

class Dict {
 public:
  /// `key` must be hashable (check_hashable).
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  int depth = 1;

 private:
  std::optional<std::size_t> position(const Value& key) const;
  std::optional<std::size_t> position(std::string_view key) const;

  std::vector<std::pair<Value, Value>> items_;                 // in order of insertion
  std::unordered_map<std::string_view, std::size_t> by_text_;  // of string keys, once there are many
};

struct Range {
  std::int64_t start = 0, stop = 0, step = 1, length = 0;
  std::int64_t at(std::int64_t i) const { return start + i * step; }
};

/// dict.keys(), values() or items().
struct View {
  std::shared_ptr<const Dict> dict;
  enum Part { kKeys, kValues, kItems } part = kKeys;
};

/// namespace(...): the one thing that a template can change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

/// A generator: gives each value once.
struct Iterator {
  std::function<std::optional<Value>()> next;
  int depth = 1;  // of what it reads and holds
};

enum class Global : std::uint8_t { kRange, kNamespace, kRaiseException, kStrftimeNow };

/// value.name(...) before the call.
struct Method {
  std::shared_ptr<const Value> self;
  std::string name;
};

class Value {
 public:
  using Data =
      std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::shared_ptr<const String>,
                   std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, Range, View,
                   std::shared_ptr<Namespace>, std::shared_ptr<Iterator>, std::shared_ptr<Loop>,
                   std::shared_ptr<const Macro>, Global, Method>;

  Value() : data_(nullptr) {}  // None
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value> && std::is_constructible_v<Data, T>) Value(T&& data)
      : data_(std::forward<T>(data)) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  const String* string() const { return pointer<const String>(); }
  const Sequence* sequence() const { return pointer<const Sequence>(); }
  const Sequence* list() const {
    return sequence() != nullptr && !sequence()->is_tuple ? sequence() : nullptr;
  }
  const Sequence* tuple() const {
    return sequence() != nullptr && sequence()->is_tuple ? sequence() : nullptr;
  }
  const Dict* dict() const { return pointer<const Dict>(); }
  Namespace* name_space() const { return pointer<Namespace>(); }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<std::nullptr_t>() != nullptr; }
  /// Integers and, as in Python, booleans.
  std::optional<std::int64_t> integer() const;
  const Data& data() const { return data_; }

 private:
  template <class T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }
  Data data_;
};

Value undefined(std::string why);

/// Identity of what is held by reference, else null.
const void* pointer_of(const Value& value);

/// For messages: "a string", "None".
std::string_view type_name(const Value& value);

/// How deep containers lie in each other inside `value`: 0 for what is none.
int depth_of(const Value& value);

bool truth(const Value& value);

/// Error unless `value` may be a key of a dict.
void check_hashable(const Value& value);

/// a == b. Charges `runtime` for what it reads.
bool equal(Runtime& runtime, const Value& a, const Value& b);

/// a < b. Errors: types without an order.
bool less(Runtime& runtime, const Value& a, const Value& b);

/// Equality of values that check_hashable accepts, as keys.
bool equal_keys(const Value& a, const Value& b);

/// str(value) and repr(value), appended to `out`. Errors: what Python prints with its address.
void append_str(Runtime& runtime, std::string& out, const Value& value);
void append_repr(Runtime& runtime, std::string& out, const Value& value);
std::string to_str(Runtime& runtime, const Value& value);

}  // namespace asynct::jinja
