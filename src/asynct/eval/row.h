#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "asynct/base/strings.h"

namespace asynct {

/// One document of a data file: typed access to its fields. Errors name file, line and field.
class Row {
 public:
  /// `where` is "file:line". Error: `value` is not an object.
  Row(const nlohmann::ordered_json& value, std::string_view where);

  bool has(std::string_view field) const;
  std::string text(std::string_view field) const;
  std::vector<std::string> texts(std::string_view field) const;
  /// A whole number, or text that spells one ("3").
  std::int64_t integer(std::string_view field) const;
  /// The object in `field`, as a row of its own.
  Row row(std::string_view field) const;

  /// Error about this document.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_with(cat(parts...));
  }

 private:
  const nlohmann::ordered_json& at(std::string_view field) const;
  [[noreturn]] void expected(std::string_view field, std::string_view kind) const;
  [[noreturn]] void fail_with(const std::string& message) const;

  const nlohmann::ordered_json& value_;
  std::string where_;
};

}  // namespace asynct
