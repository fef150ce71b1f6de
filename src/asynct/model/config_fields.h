#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "asynct/base/json.h"

namespace asynct {

/// Typed access to one JSON object that remembers which keys were read, so that the rest can be refused.
/// Every Error says the file, the key, what was found and what was expected. null counts as absent.
class ConfigFields {
 public:
  /// `object` must outlive this. Errors: not an object.
  ConfigFields(const Json& object, std::string_view what);

  bool has(std::string_view key) const;  // present and not null; does not count as reading

  /// Without a fallback the key is required.
  std::int32_t integer(std::string_view key, std::int32_t low, std::int32_t high,
                       std::optional<std::int32_t> fallback = {});
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {});
  bool boolean(std::string_view key, std::optional<bool> fallback = {});
  /// One of `allowed`.
  std::string choice(std::string_view key, const std::vector<std::string_view>& allowed,
                     std::optional<std::string_view> fallback = {});
  /// Two numbers, the first below the second.
  std::pair<double, double> interval(std::string_view key, std::pair<double, double> fallback);
  /// One token id or a list of them, each in [0, vocab_size); -1 means none.
  std::vector<std::int32_t> token_ids(std::string_view key, std::int32_t vocab_size);
  /// An object; null when absent.
  const Json* object(std::string_view key);

  /// The key may be absent, null or equal to `value`; anything else is arithmetic that is not supported.
  void require_only(std::string_view key, const Json& value);
  /// A list whose entries all equal `value`, or absent.
  void require_all(std::string_view key, const Json& value);
  void ignore(std::string_view key) { read_.emplace(key); }

  /// Error when a key was neither read nor ignored.
  void refuse_the_rest() const;

  [[noreturn]] void reject(std::string_view key, std::string_view expected) const;

 private:
  const Json* read(std::string_view key);  // null when absent or null
  const Json& required(std::string_view key, std::string_view expected);

  const Json& object_;
  std::string what_;
  std::unordered_set<std::string> read_;
};

}  // namespace asynct
