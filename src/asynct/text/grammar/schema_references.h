#pragma once

#include <string_view>

#include "asynct/base/json.h"

namespace asynct {

/// What a `$ref` of `root` leads to, found as xgrammar finds it: "#" or "#/" and a JSON pointer. Null:
/// nothing.
const Json* referred_to(const Json& root, std::string_view reference);

}  // namespace asynct
