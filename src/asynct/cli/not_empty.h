#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace asynct {

/// An option's value may not be "": that is a variable which a script has not set.
inline CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& value) { return value.empty() ? std::string("expected a value, found none") : ""; },
      "");
}

}  // namespace asynct
