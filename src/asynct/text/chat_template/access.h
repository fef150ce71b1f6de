#pragma once

#include <string_view>

#include "asynct/text/chat_template/runtime.h"

// Attributes, items and slices, as the sandbox looks them up. What is not there is undefined; access to parts
// of an undefined value is an Error.
namespace asynct::jinja {

/// object.name: an attribute or method, else the item of that key.
Value get_attribute(Runtime& runtime, const Value& object, std::string_view name);

/// object[key]: an item, else the attribute or method of that name.
Value get_item(Runtime& runtime, const Value& object, const Value& key);

/// object[start:stop:step]; null parts are left out. Errors: not a sequence, bounds that are no integers,
/// step 0.
Value get_slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop,
                const Value* step);

/// A path of attributes as filters take it, "address.city" or 0; looked up by get_item.
class AttributePath {
 public:
  explicit AttributePath(Runtime& runtime, const Value& path);
  /// `otherwise`, if not null, stands for parts that are undefined.
  Value get(Runtime& runtime, const Value& object, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace asynct::jinja
